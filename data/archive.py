"""Safe extraction of chosen files from a tar archive, plain or gzip.

An archive is input from outside: its names can point anywhere, its sizes can lie, and a small gzip file can
hold terabytes. Nothing here trusts the header or the defaults of `tarfile`: every member is checked, also the
ones that are not kept, and reading stops at fixed limits. The caller passes a temporary folder as the target
and throws it away when `extract` raises.
"""

from __future__ import annotations

import gzip
import logging
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from common.errors import BadInput

# Generous for the archive that is read here (some hundred files, 40 MB), far below what would harm a machine.
MAX_MEMBERS = 10_000
MAX_MEMBER_BYTES = 256 * 2**20
MAX_TOTAL_BYTES = 1024 * 2**20

_BLOCK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BROKEN = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    ValueError,
    OverflowError,
    RecursionError,
)


class _Header(tarfile.TarInfo):
    """A header that `tarfile` would take for the end of the archive, after which it would pass over the rest."""

    @classmethod
    def fromtarfile(cls, tar):
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # the zeros that end an archive
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error}, at byte {tar.offset}") from error


@dataclass
class Extracted:
    """What `extract` wrote, as paths relative to the target, and how many files it passed over."""

    files: list[str] = field(default_factory=list)
    ignored: int = 0


class _Limited:
    """The unpacked bytes of an archive, with an end: headers, padding and skipped members count as well."""

    def __init__(self, stream: BinaryIO, limit: int, name: Path):
        self._stream, self._left, self._limit, self._name = stream, limit, limit, name

    def read(self, size: int) -> bytes:
        block = self._stream.read(size)
        self._left -= len(block)
        if self._left < 0:
            raise BadInput(f"{self._name}: unpacks to more than {self._limit} bytes in total; refused")
        return block


def extract(archive: Path, target: Path, keep: Callable[[str], str | None]) -> Extracted:
    """Write the members that `keep` wants below `target`.

    Args:
        archive: A tar file, plain or gzip.
        target: An existing folder; only new files are made in it.
        keep: Gets the cleaned name of a member (`a/b`, never absolute, without `.` and `..`) and returns the
            path to write, relative to `target`, or None to pass the member over.

    Raises:
        BadInput: The archive is damaged, or has a member that an honest archive of text files does not have.
    """
    done, names, total = Extracted(), set(), 0
    try:
        with archive.open("rb") as raw:
            packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            stream = _Limited(gzip.open(raw) if packed else raw, MAX_TOTAL_BYTES, archive)
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
                for count, member in enumerate(tar, start=1):
                    name = _checked(archive, member, names)
                    total += member.size
                    if count > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
                        limits = f"{MAX_MEMBERS} members or {MAX_TOTAL_BYTES} bytes"
                        raise BadInput(f"{archive}: more than {limits} in total; refused")
                    if member.isfile():
                        _take(archive, tar, member, keep(name), target, done)
                while rest := tar.fileobj.read(_BLOCK):
                    if rest.strip(b"\0"):
                        raise BadInput(f"{archive}: goes on behind its end; remove it and download it again")
    except _BROKEN as error:
        raise BadInput(f"{archive}: not a whole tar archive ({error}); remove it and download it again") from error
    return done


def _checked(archive: Path, member: tarfile.TarInfo, names: set[str]) -> str:
    """The cleaned name of a member, after every check that needs no content."""
    where = f"{archive}: member {member.name!r}"
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    name = "/".join(parts)
    if member.name.startswith("/") or "\\" in name or "\0" in name or ":" in name[:2]:
        raise BadInput(f"{where} has an absolute or unusable path; refused")
    if ".." in parts:
        raise BadInput(f"{where} climbs out of its folder with '..'; refused")
    if member.isdir():
        return name
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise BadInput(f"{where} is a {_kind(member)}, not a regular file; refused")
    if name in names:
        raise BadInput(f"{where} is there twice; refused")
    if member.size > MAX_MEMBER_BYTES:
        raise BadInput(f"{where} has {member.size} bytes, more than {MAX_MEMBER_BYTES}; refused")
    names.add(name)
    return name


def _kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return f"link to {member.linkname!r}"
    return "device or fifo" if member.isdev() else f"special entry (type {member.type!r})"


def _new_file(path: Path, where: str) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")
    except (FileExistsError, NotADirectoryError) as error:
        raise BadInput(f"{where} is in the place of another member, or below a file; refused") from error


def _take(
    archive: Path,
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    path: str | None,
    target: Path,
    done: Extracted,
) -> None:
    if path is None:
        done.ignored += 1
        return
    if path in done.files:
        raise BadInput(f"{archive}: two members are both {path}; refused")
    source = tar.extractfile(member)
    if source is None:
        raise BadInput(f"{archive}: member {member.name!r} has no content; refused")
    written = 0
    with _new_file(target / path, f"{archive}: member {member.name!r}") as sink:
        while block := source.read(_BLOCK):
            written += len(block)
            # The declared size was checked; what is really read is counted all the same.
            if written > min(member.size, MAX_MEMBER_BYTES):
                raise BadInput(f"{archive}: member {member.name!r} is longer than it says; refused")
            sink.write(block)
    if written < member.size:
        raise BadInput(f"{archive}: ends within {member.name!r}; remove it and download it again")
    done.files.append(path)
    logging.getLogger(__name__).debug("extracted %s", path)
