"""Lines of plain and compressed files, numbered from 1, and the content hash of files.

Only a line feed ends a line (not a carriage return, U+2028 or NEL). Compression is detected by a
file's first bytes, not by its name.
"""

import bz2
import hashlib
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from common.errors import BadInput
from common.files import open_regular

LONGEST = 1_000_000  # bytes of a line or cell; a longer "sentence" is a file without line breaks
_INSPECTED = 100  # first lines of a file, to tell texts from JSON
_BLOCK = 2**16
_READERS = {"csv": "csv", "json": "json", "jsonl": "json", "parquet": "parquet", "arrow": "arrow"}
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def numbered_lines(path: Path, longest: int = LONGEST) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers.

    Raises:
        BadInput: with file and line: the file cannot be opened or is damaged, or a line is not
            UTF-8, has a NUL or is longer than `longest` bytes.
    """
    suffix, number = packing(path), 0
    with open_regular(path) as stream:
        if suffix:
            stream = io.BufferedReader(_Joined(stream, _PACKINGS[suffix][1]))
        while True:
            number += 1
            try:
                line = stream.readline(longest + 2)
            except _DAMAGED as error:
                raise BadInput(
                    f"{path}:{number}: the compressed file is damaged or truncated ({error})"
                ) from error
            if not line:
                return
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            try:
                if len(line) > longest:
                    raise ValueError(
                        f"line longer than {longest:,} bytes; is it one sentence per line?"
                    )
                if b"\0" in line:  # UTF-16 and binary files can be valid UTF-8
                    raise ValueError("NUL byte; the file is not plain text")
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except ValueError as error:
                raise BadInput(f"{path}:{number}: {error}") from error
            yield number, text


def content_hash(paths: Sequence[str | Path]) -> str:
    """Return the sha256 of the digests of the files, in order."""
    digest = hashlib.sha256()
    for path in paths:
        with open_regular(Path(path)) as stream:
            # mypy does not know that a file opened for bytes can be read into a buffer.
            digest.update(hashlib.file_digest(stream, "sha256").digest())  # type: ignore[arg-type]
    return digest.hexdigest()


def packing(path: Path) -> str:
    """Return the compression of a file as a suffix (.gz, .xz, .bz2, .zst); "" for a plain file."""
    with open_regular(path) as stream:
        magic = stream.read(10)
    for suffix, (pattern, _) in _PACKINGS.items():
        if pattern.match(magic):
            return suffix
    return ""


class _Joined(io.RawIOBase):
    """All streams of a compressed file, one after the other; `new` makes a decompressor.

    The libraries' readers, and so those of fsspec and `datasets`, lose text silently: those of xz
    and bz2 end at anything but a complete stream after the first one, that of zstd at a truncation.
    """

    def __init__(self, stream: BinaryIO, new: Callable[[], Any]) -> None:
        self._parts, self._left = self._unpack(stream, new), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._left:
            if (part := next(self._parts, None)) is None:
                return 0
            self._left = memoryview(part)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

    @staticmethod
    def _unpack(stream: BinaryIO, new: Callable[[], Any]) -> Iterator[bytes]:
        current = None  # the decompressor of a stream that has begun and not ended
        left = b""
        while block := left or stream.read(_BLOCK):
            left = b""
            if current is None:
                block = block.lstrip(b"\0")  # padding between streams
                if not block:
                    continue
                current = new()
            yield current.decompress(block)
            if current.eof:
                left, current = current.unused_data, None
        if current is not None:
            raise EOFError("file ended within a stream")


_PACKINGS: dict[str, tuple[re.Pattern, Callable[[], Any]]] = {
    ".gz": (re.compile(rb"\x1f\x8b"), lambda: zlib.decompressobj(31)),
    ".xz": (re.compile(rb"\xfd7zXZ\x00"), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
    ".bz2": (re.compile(rb"BZh[1-9]1AY&SY"), bz2.BZ2Decompressor),
    # The second pattern is an empty frame, as pzstd writes first.
    ".zst": (
        re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
        lambda: zstandard.ZstdDecompressor().decompressobj(),
    ),
}


def reader_of(path: Path) -> str:
    """How a file is read, by its name: csv, json, parquet, arrow, or text for lines."""
    return _READERS.get(_ending(path), "text")


def is_table(path: Path) -> bool:
    """Whether a file has named columns, by its name: lines with tabs have, in a .tsv."""
    return reader_of(path) != "text" or _ending(path) == "tsv"


def _ending(path: Path) -> str:
    """The last suffix of a file's name, that of its compression left out."""
    name = Path(path.name.lower())
    if name.suffix in _PACKINGS:
        name = name.with_suffix("")
    return name.suffix[1:]


def texts_by_line(path: Path) -> Iterator[tuple[int, str]]:
    """`numbered_lines` of a file of texts.

    BadInput for a table, by its name, and for JSON in a file of another name: a model would train
    on the braces and field names.
    """
    first = [line for _, line in islice(numbered_lines(path), _INSPECTED) if line.strip()]
    if reader_of(path) != "text" or sum(map(_is_object, first)) > len(first) / 2:
        raise BadInput(
            f"{path}: a table, not one text per line; convert it, or name a file of JSON lines "
            "NAME.jsonl"
        )
    return numbered_lines(path)


def _is_object(line: str) -> bool:
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
