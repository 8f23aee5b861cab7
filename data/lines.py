"""Lines of plain and compressed files, numbered from 1, and the content hash of files.

Only a line feed ends a line (not U+2028, not NEL); `datasets`, which reads the training text, also ends one at a
carriage return. Compression is detected by a file's first bytes, not by its name.
Tables named like text files are refused: a model would train on braces and field names. In doubt a file is read:
quotation marks and commas alone do not make a table.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from common.errors import BadInput
from common.files import open_regular

LONGEST_LINE = 1_000_000  # bytes; a longer "sentence" is a file without line breaks
INSPECTED = 100  # first lines of a file, to tell texts from a table
_BLOCK = 2**16
_KINDS = {
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".arrow": "arrow",
    ".feather": "arrow",
}  # fmt: skip
_FIELDS = set(
    "text sentence sentences premise hypothesis label labels gold_label score id idx index anchor positive negative "
    "query document passage title body source target question answer".split()
)
_NUMBERED = re.compile(r"[a-z]+(?:_[a-z0-9]+|\d)+")
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def numbered_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers.

    Raises:
        BadInput: with file and line: the file cannot be opened or is damaged, or a line is not UTF-8, has a NUL or is
            longer than `longest` bytes.
    """
    with open_regular(path) as packed, unpacked(packed, packing(path)) as stream:
        for number, line in enumerate(_lines(stream, path, longest), start=1):
            yield number, _decoded(line, path, number)


def content_hash(paths: Sequence[str | Path]) -> str:
    """Return the sha256 of the digests of the files, in order."""
    digest = hashlib.sha256()
    for path in paths:
        with open_regular(Path(path)) as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def packing(path: Path) -> str:
    """Return the compression of a file as a suffix (.gz, .xz, .bz2, .zst); empty for a plain file."""
    with open_regular(path) as stream:
        magic = stream.read(10)
    return next((suffix for suffix, (pattern, _) in _PACKINGS.items() if pattern.match(magic)), "")


def unpacked(stream: BinaryIO, suffix: str) -> BinaryIO:
    """Decompress a stream; `suffix` as returned by `packing`."""
    return _PACKINGS[suffix][1](stream) if suffix else stream


class _Joined(io.RawIOBase):
    """All streams of an xz file, or frames of a zstd file, decompressed in turn; `new` creates a decompressor.

    The libraries' readers silently stop early: `lzma`'s at anything but a complete stream after the first one,
    `zstandard`'s after the first frame and at a truncation.
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
        left, current = b"", None
        while block := left or stream.read(_BLOCK):
            if current is None and not (block := block.lstrip(b"\0")):  # padding between streams
                left = b""
                continue
            current = current or new()
            yield current.decompress(block)
            left = current.unused_data if current.eof else b""
            current = None if current.eof else current
        if current is not None:
            raise EOFError("file ended within a stream")


def _joined(new: Callable[[], Any]) -> Callable[[BinaryIO], BinaryIO]:
    return lambda stream: io.BufferedReader(_Joined(stream, new))


_PACKINGS: dict[str, tuple[re.Pattern, Callable[[BinaryIO], BinaryIO]]] = {
    ".gz": (re.compile(rb"\x1f\x8b"), lambda stream: gzip.GzipFile(fileobj=stream)),
    ".xz": (re.compile(rb"\xfd7zXZ\x00"), _joined(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ))),
    ".bz2": (re.compile(rb"BZh[1-9]1AY&SY"), _joined(bz2.BZ2Decompressor)),
    # The second pattern is an empty frame, which pzstd writes first.
    ".zst": (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
             _joined(lambda: zstandard.ZstdDecompressor().decompressobj())),
}  # fmt: skip


def _lines(stream: BinaryIO, path: Path, longest: int) -> Iterator[bytes]:
    number = 0
    while True:
        try:
            line = stream.readline(longest + 2)
        except _DAMAGED as error:
            raise BadInput(f"{path}:{number + 1}: the compressed file is damaged or truncated ({error})") from error
        if not line:
            return
        number += 1
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > longest:
            raise BadInput(f"{path}:{number}: line longer than {longest:,} bytes; is it one sentence per line?")
        yield line


def _decoded(line: bytes, path: Path, number: int) -> str:
    if b"\x00" in line:
        raise BadInput(f"{path}:{number}: NUL byte at column {line.index(0) + 1}; the file is not plain text")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}:{number}: byte {error.start + 1} is not UTF-8; convert the file first") from error


def kind_of(path: Path) -> str:
    """The reader in `datasets` for a file, by its name: csv, json, parquet, arrow, or text for lines."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKINGS:
        suffixes.pop()
    return _KINDS.get(suffixes[-1], "text") if suffixes else "text"


def texts_by_line(path: Path) -> Iterator[tuple[int, str]]:
    """`numbered_lines` of a file with one text per line.

    Raises:
        BadInput: also for a table, whose lines are not texts, and for a carriage return within a line, where training
            would end it.
    """
    lines = numbered_lines(path)
    first = list(islice(lines, INSPECTED))
    filled = [(number, line) for number, line in first if line.strip()]
    try:
        table = kind_of(path) != "text"
        if filled:
            refuse_tables(path, filled[0][0], [line for _, line in filled])
    except BadInput:
        table = True
    if table:
        raise BadInput(f"{path}: a table, not one text per line; convert it to Parquet or to lines of text")
    for number, line in chain(first, lines):
        if "\r" in line:
            raise BadInput(f"{path}:{number}: carriage return within a line; convert the line ends to line feeds")
        yield number, line


def refuse_tables(path: Path, number: int, lines: Sequence[str]) -> None:
    """Raise BadInput if the first lines are mostly JSON objects, or the first one, line `number`, is a header.

    A single word counts as a header only in a `.tsv`.
    """
    if sum(map(_is_object, lines)) > len(lines) / 2:
        raise BadInput(f"{path}: most of its first lines are JSON objects, not sentences; name it NAME.jsonl")
    cells = [cell.strip(' "') for cell in lines[0].split(",")]
    if len(cells) > 1 and all(map(_is_name, cells)):
        raise BadInput(f"{path}: its first line is a header ({', '.join(cells)}), not a sentence; name it NAME.csv")
    cells = [cell.strip() for cell in lines[0].split("\t")]
    if (len(cells) > 1 or ".tsv" in path.name.lower()) and all(map(_is_name, cells)):
        header = ", ".join(cells)
        raise BadInput(f"{path}:{number}: a header ({header}), not a row of sentences; remove it, or name columns by "
                       "--text_column")  # fmt: skip


def _is_name(cell: str) -> bool:
    return cell in _FIELDS or _NUMBERED.fullmatch(cell) is not None


def _is_object(line: str) -> bool:
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
