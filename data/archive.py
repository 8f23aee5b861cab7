"""Safe extraction of chosen files from a tar archive, plain or gzip.

An archive is untrusted: its names can point anywhere, and a small gzip file can unpack to terabytes. Only regular
files that the caller names are written, to the paths that the caller chooses, within `tarfile`'s data filter and a
limit; everything else is skipped. The caller passes a temporary folder, deletes it when `extract` raises, and checks
that it has all files: `tarfile` takes a damaged header for the end.
"""

import gzip
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from common.errors import BadInput

MAX_BYTES = 1024 * 2**20  # generous for the archive read here: some hundred files, 40 MB
_GZIP_MAGIC = b"\x1f\x8b"
_BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError, RecursionError)


class _Limited:
    """The unpacked bytes of an archive, at most MAX_BYTES with headers, padding and skipped members."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._left = stream, MAX_BYTES

    def read(self, size: int) -> bytes:
        block = self._stream.read(size)
        self._left -= len(block)
        if self._left < 0:
            raise ValueError(f"unpacks to more than {MAX_BYTES} bytes")
        return block


def extract(archive: Path, target: Path, keep: Callable[[str], str | None]) -> tuple[list[str], int]:
    """Write the members of a tar file, plain or gzip, that `keep` selects below `target`, an existing folder.

    `keep` gets the name of a regular file in the archive (`a/b`, never absolute, without `.` and `..`) and returns the
    path to write, relative to `target`, or None to skip it.

    Returns the written paths, relative to `target`, and the number of skipped files. BadInput if the archive is
    damaged or too large, or a path leaves `target` or is already taken.
    """
    written, skipped = [], 0
    try:
        with archive.open("rb") as raw:
            is_packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            stream = _Limited(gzip.open(raw) if is_packed else raw)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
                    name = "/".join(part for part in member.name.split("/") if part not in ("", "."))
                    path = keep(name) if is_plain and ".." not in name.split("/") else None
                    if path is None:
                        skipped += not member.isdir()
                    elif (target / path).exists():
                        raise ValueError(f"two members for {path}")
                    else:
                        tar.extract(member.replace(name=path, deep=False), target, set_attrs=False, filter="data")
                        written.append(path)
    except (*_BROKEN, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BadInput(f"{archive}: incomplete or not the expected archive ({error}); remove it, run again") from error
    return written, skipped
