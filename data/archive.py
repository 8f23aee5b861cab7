"""Safe extraction of chosen files from a tar archive, plain or gzip.

An archive is untrusted: its names can point anywhere, its sizes can lie, and a small gzip file can unpack to terabytes.
`tarfile.data_filter` confines writes to the target; the checks here also refuse anything that does not belong in an
archive of text files, in every member, extracted or not. The caller passes a temporary folder and deletes it when
`extract` raises.
"""

import gzip
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from common.errors import BadInput

# Generous for the one archive read here (some hundred files, 40 MB).
MAX_MEMBERS = 10_000
MAX_MEMBER_BYTES = 256 * 2**20
MAX_TOTAL_BYTES = 1024 * 2**20

_BLOCK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError, RecursionError)
_CONFLICT = (FileExistsError, NotADirectoryError, IsADirectoryError)


class _Header(tarfile.TarInfo):
    """Raises on a damaged header, which `tarfile` would treat as the end of the archive."""

    @classmethod
    def fromtarfile(cls, tar):
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # the zeros that end an archive
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error}, at byte {tar.offset}") from error


class _Limited:
    """The unpacked bytes of an archive, limited to MAX_TOTAL_BYTES including headers, padding and skipped members."""

    def __init__(self, stream: BinaryIO, name: Path) -> None:
        self._stream, self._left, self._name = stream, MAX_TOTAL_BYTES, name

    def read(self, size: int) -> bytes:
        block = self._stream.read(size)
        self._left -= len(block)
        if self._left < 0:
            raise BadInput(f"{self._name}: unpacks to more than {MAX_TOTAL_BYTES} bytes; refused")
        return block


def extract(archive: Path, target: Path, keep: Callable[[str], str | None]) -> tuple[list[str], int]:
    """Write the members of a tar file, plain or gzip, that `keep` selects below `target`, an existing folder.

    `keep` gets the normalised name of a member (`a/b`, never absolute, without `.` and `..`) and returns the path to
    write, relative to `target`, or None to skip the member. Files in `target` are not replaced.

    Returns the written paths, relative to `target`, and the number of skipped files. BadInput if the archive is damaged
    or too large, or has a member that does not belong in an archive of text files.
    """
    try:
        with archive.open("rb") as raw:
            packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            stream = _Limited(gzip.open(raw) if packed else raw, archive)
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
                result = _extract(tar, archive, target, keep)
                while rest := tar.fileobj.read(_BLOCK):
                    if rest.strip(b"\0"):
                        raise BadInput(f"{archive}: data after the end of the archive; remove it and download it again")
    except _BROKEN as error:
        raise BadInput(f"{archive}: incomplete or no tar archive ({error}); remove it and download it again") from error
    return result


def _extract(
    tar: tarfile.TarFile, archive: Path, target: Path, keep: Callable[[str], str | None]
) -> tuple[list[str], int]:
    written, names, total = [], set(), 0
    for count, member in enumerate(tar, start=1):
        where = f"{archive}: member {member.name!r}"
        name = _checked_name(member, where)
        total += member.size
        if count > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
            raise BadInput(f"{archive}: more than {MAX_MEMBERS} members or {MAX_TOTAL_BYTES} bytes; refused")
        if member.isdir():
            continue
        if name in names:
            raise BadInput(f"{where} occurs twice; refused")
        names.add(name)
        if (path := keep(name)) is not None:
            try:
                if (target / path).exists():
                    raise FileExistsError
                plain = member.replace(name=path, deep=False)
                tar.extract(plain, target, set_attrs=False, filter="data")
            except _CONFLICT as error:
                raise BadInput(f"{where} has the path of another member, or one below a file; refused") from error
            written.append(path)
    return written, len(names) - len(written)


def _checked_name(member: tarfile.TarInfo, where: str) -> str:
    """Normalise the name of a member; BadInput unless it is a regular file or folder inside the target."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if member.name.startswith("/") or "\\" in member.name or "\0" in member.name or ":" in "/".join(parts)[:2]:
        raise BadInput(f"{where} has an absolute or unusable path; refused")
    if ".." in parts:
        raise BadInput(f"{where} leaves the target folder with '..'; refused")
    if not member.isdir() and (member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse()):
        link = f" to {member.linkname!r}" if member.issym() or member.islnk() else ""
        raise BadInput(f"{where} is a link{link}, a device or another special entry, not a regular file; refused")
    if not 0 <= member.size <= MAX_MEMBER_BYTES:
        raise BadInput(f"{where} has {member.size} bytes, not 0 to {MAX_MEMBER_BYTES}; refused")
    return "/".join(parts)
