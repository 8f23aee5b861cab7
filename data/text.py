"""Streaming reader of training text: one sentence a line, tab-separated sentences, or labelled pairs.

Only a line feed ends a line (not U+2028, not NEL). The first bytes of a file, not its name, tell whether it is plain,
gzip, xz or zstd.
"""

from __future__ import annotations

import gzip
import hashlib
import io
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
from data.formats import LOOKED_AT, refuse_by_lines, refuse_by_name, refuse_header

VERSION = 1  # part of the cache's key: raise it when the same bytes would give other rows
LONGEST_LINE = 1_000_000  # bytes; a longer "sentence" is a file without line ends
NLI_HEADER = ("premise", "hypothesis", "label")
NLI_LABELS = ("contradiction", "entailment", "neutral")
_BLOCK = 8192
_ZSTD_SKIPPED = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # a frame without content, with which pzstd begins
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


class Reader:
    """Iterate over the rows of several files; count rows and dropped lines.

    Args:
        paths: the files, read in this order.
        columns: sentences in a row; 1 for plain text.

    Raises:
        BadInput: for a file named as CSV, JSON, Parquet or Arrow. While iterating, with file and line: a file that
            cannot be opened, is empty or damaged, or holds another format (`data.formats`); bytes that are not UTF-8;
            a NUL; a line over `LONGEST_LINE`; a row with another number of columns; a header.
    """

    has_header = False  # whether a file's first row names the columns

    def __init__(self, paths: Sequence[str | Path], columns: int = 1) -> None:
        self.paths = [Path(path) for path in paths]
        for path in self.paths:
            refuse_by_name(path)
        self.columns = columns
        self.rows = 0
        self.empty_lines = 0

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        self.rows = self.empty_lines = 0
        for path in self.paths:
            before = self.rows
            yield from self._rows(path)
            if self.rows == before:
                raise BadInput(f"{path}: holds no sentence (empty, or only empty lines)")

    def _rows(self, path: Path) -> Iterator[tuple[str, ...]]:
        lines = numbered_lines(path)
        first = list(islice(lines, LOOKED_AT))
        refuse_by_lines(path, [text for _, text in first])
        before = self.rows
        for number, text in chain(first, lines):
            if not text.strip():
                self.empty_lines += 1
                continue
            row = self._row(text, path, number)
            if row is not None:
                if self.rows == before and not self.has_header:
                    refuse_header(path, number, row)
                yield row
                self.rows += 1

    def _row(self, text: str, path: Path, number: int) -> tuple[str, ...] | None:
        """The cells of a line; None for a line that is not a row."""
        row = tuple(cell.strip() for cell in text.split("\t"))
        if row == NLI_HEADER and not self.has_header:
            raise BadInput(f"{path}:{number}: the header of labelled pairs, not sentences; run_sup.py reads them")
        if len(row) != self.columns:
            hint = "; --columns 2 or 3 reads rows of sentences" if self.columns == 1 else ""
            raise BadInput(f"{path}:{number}: {len(row)} tab-separated columns, expected {self.columns}{hint}")
        if not all(row):
            raise BadInput(f"{path}:{number}: column {row.index('') + 1} is empty")
        return row


class LabelledReader(Reader):
    """Iterate over (premise, hypothesis, label) of natural language inference sets.

    The first non-empty line of every file is the header `premise hypothesis label`, tab-separated. Rows without a
    majority label, marked `-` in SNLI, are dropped and counted.

    Raises:
        BadInput: while iterating, with file and line: as `Reader`; another header; an unknown label.
    """

    has_header = True

    def __init__(self, paths: Sequence[str | Path]) -> None:
        super().__init__(paths, len(NLI_HEADER))
        self.undecided = 0

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        self.undecided = 0
        return super().__iter__()

    def _rows(self, path: Path) -> Iterator[tuple[str, ...]]:
        self._header_due = True
        return super()._rows(path)

    def _row(self, text: str, path: Path, number: int) -> tuple[str, ...] | None:
        row = super()._row(text, path, number)
        if self._header_due:
            if row != NLI_HEADER:
                raise BadInput(f"{path}:{number}: the header is not `{' '.join(NLI_HEADER)}`, tab-separated")
            self._header_due = False
            return None
        if row[2] == "-":
            self.undecided += 1
            return None
        if row[2] not in NLI_LABELS:
            raise BadInput(f"{path}:{number}: label '{row[2][:40]}' is not one of {', '.join(NLI_LABELS)}")
        return row


def reader_of(paths: Sequence[str | Path], columns: int | None) -> Reader:
    """A Reader of rows of that many sentences; a LabelledReader for None."""
    return LabelledReader(paths) if columns is None else Reader(paths, columns)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a plain or compressed file, numbered from 1; BadInput as for `Reader`."""
    with _unpacked(path) as stream:
        for number, line in enumerate(_lines(stream, path), start=1):
            yield number, _decoded(line, path, number)


def content_hash(paths: Sequence[str | Path]) -> str:
    """sha256 over the bytes of the files in their order."""
    digest = hashlib.sha256()
    for path in paths:
        with open_regular(Path(path)) as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _unpacked(path: Path) -> BinaryIO:
    stream = open_regular(path)
    magic = stream.peek(6)[:6]
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return io.BufferedReader(_Joined(stream, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padded=True))
    if magic.startswith(b"\x28\xb5\x2f\xfd") or _ZSTD_SKIPPED.match(magic):
        return io.BufferedReader(_Joined(stream, lambda: zstandard.ZstdDecompressor().decompressobj(), padded=False))
    return stream


class _Joined(io.RawIOBase):
    """All streams of an xz file, or frames of a zstd file, decompressed one after the other.

    The libraries' own readers silently end early: `lzma`'s at anything but a whole stream behind the first one,
    `zstandard`'s where the file is cut off.

    Args:
        stream: the compressed bytes.
        new: makes a decompressor of one stream.
        padded: whether zeros may follow a stream, a multiple of four, as the xz format allows.
    """

    def __init__(self, stream: BinaryIO, new: Callable[[], Any], padded: bool) -> None:
        self._stream, self._new, self._padded = stream, new, padded
        self._current = None
        self._packed = self._plain = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._plain:
            packed = self._packed or self._stream.read(_BLOCK)
            if self._padded and self._current is None:
                packed = self._behind_padding(packed)
            if not packed and self._current:
                raise EOFError("file ended within a stream")
            if not packed:
                return 0
            self._current = self._current or self._new()
            self._plain, self._packed = memoryview(self._current.decompress(packed)), b""
            if self._current.eof:
                self._packed, self._current = self._current.unused_data, None
        count = min(len(buffer), len(self._plain))
        buffer[:count], self._plain = self._plain[:count], self._plain[count:]
        return count

    def _behind_padding(self, packed: bytes) -> bytes:
        zeros, rest = 0, b""
        while packed and not rest:
            rest = packed.lstrip(b"\0")
            zeros += len(packed) - len(rest)
            packed = rest or self._stream.read(_BLOCK)
        if zeros % 4:
            raise EOFError(f"{zeros} zeros behind a stream, not a multiple of four")
        return rest


def _lines(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    number = 0
    while True:
        try:
            line = stream.readline(LONGEST_LINE + 2)
        except _DAMAGED as error:
            raise BadInput(f"{path}:{number + 1}: the compressed file is damaged or cut off ({error})") from error
        if not line:
            return
        number += 1
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > LONGEST_LINE:
            raise BadInput(f"{path}:{number}: line longer than {LONGEST_LINE:,} bytes; is it one sentence a line?")
        yield line


def _decoded(line: bytes, path: Path, number: int) -> str:
    if b"\x00" in line:
        raise BadInput(f"{path}:{number}: NUL byte at column {line.index(0) + 1}; the file is not plain text")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}:{number}: byte {error.start + 1} is not UTF-8; convert the file first") from error
