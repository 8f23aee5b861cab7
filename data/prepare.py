"""Download, verify and lay out the corpora: `python -m data.prepare [NAME ...] [--data_dir DIR]`."""

from __future__ import annotations

import argparse
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from common.errors import BadInput, run_command, unwritable
from common.flags import Parser
from common.streams import show
from data import sts_texts
from data.archive import extract
from data.hub import check, fetch, record
from data.sources import (
    ARCHIVE,
    NAMES,
    SETS,
    WIKI,
    WIKI_TERMS,
    EvalSet,
    described,
    missing_files,
    place_of,
    read_pinned,
)

logger = logging.getLogger(__name__)
DEFAULT_NAMES = ("sts", "wiki1m")
LOCK = "prepare.lock.json"
DOWNLOAD = ".download"
_HEADER = ("set", "files", "lines", "bytes", "digest", "terms of use")


def prepare(names: Sequence[str], data_dir: Path, pinned: Mapping[str, str] | None = None) -> list[tuple]:
    """Download every named part into `data_dir`.

    Args:
        names: some of `NAMES`.
        data_dir: the folder to fill, created if missing.
        pinned: the expected digests; default: those of data/SHA256SUMS.

    Returns:
        The rows of the final table.

    Raises:
        BadInput: something cannot be downloaded or is not as expected; nothing of that part is in place.
    """
    if unknown := sorted(set(names).difference(NAMES)):
        raise BadInput(f"unknown name {unknown[0]!r}; the names are {', '.join(NAMES)}")
    pinned = read_pinned() if pinned is None else pinned
    sets = [one for one in SETS if one.part in names]
    rows = []
    if sets:
        _prepare_sets(sets, data_dir, pinned)
        rows += [_row(one.name, one.files(pinned), data_dir, "pinned", one.terms) for one in sets]
    if "wiki1m" in names:
        _prepare_wiki(data_dir)
        rows.append(_row("wiki1m", [WIKI.target], data_dir, "recorded", WIKI_TERMS))
    if "sts_texts" in names:
        for line in sts_texts.write(data_dir):
            logger.info("%s", line)
        rows.append(_row("sts_texts", [sts_texts.TARGET], data_dir, "made here", "those of the STS sets"))
    shutil.rmtree(data_dir / DOWNLOAD, ignore_errors=True)
    return rows


def _prepare_sets(sets: list[EvalSet], data_dir: Path, pinned: Mapping[str, str]) -> None:
    advice = f"this is not the published file: remove it from {data_dir} and run again"
    todo = {one.part for one in sets if missing_files(one, data_dir, pinned, advice)}
    for part in dict.fromkeys(one.part for one in sets if one.part not in todo):
        logger.info("%s: already there, verified", part)
    if not todo:
        return
    lock, archive_place = data_dir / LOCK, data_dir / ARCHIVE.target
    archive, commit = fetch(ARCHIVE, data_dir / DOWNLOAD, archive_place)
    with TemporaryDirectory(dir=data_dir / DOWNLOAD, prefix="staged-") as staged:
        try:
            digest = check(lock, ARCHIVE, archive)
            kept, ignored = _unpack([one for one in sets if one.part in todo], archive, Path(staged), pinned)
        except BadInput:
            archive.unlink()  # otherwise the next run would find it and refuse it again
            raise
        record(lock, ARCHIVE, commit, digest, archive.stat().st_size)
        _move(Path(staged) / "senteval", data_dir / "senteval")
    archive.unlink()
    logger.info("%s: %d files kept in %s, %d others ignored", ARCHIVE.file, len(kept), archive_place, ignored)


def _unpack(sets: list[EvalSet], archive: Path, staged: Path, pinned: Mapping[str, str]) -> tuple[list[str], int]:
    wanted = {path for one in sets for path in one.files(pinned)}
    found = extract(archive, staged, lambda member: place_of(member, wanted))
    advice = f"{ARCHIVE.file} is not the published one: set HF_ENDPOINT to a mirror, or put the files there by hand"
    for one in sets:
        if missing := missing_files(one, staged, pinned, advice):
            raise BadInput(f"{archive.name}: lacks {len(missing)} files of {one.name}: {missing[0]} ...; {advice}")
    return found


def _move(staged: Path, place: Path) -> None:
    """Rename into place: a whole folder where there is none, otherwise file by file."""
    if staged.is_dir() and place.is_dir():
        for child in sorted(staged.iterdir()):
            _move(child, place / child.name)
    else:
        staged.replace(place)


def _prepare_wiki(data_dir: Path) -> None:
    place = data_dir / WIKI.target
    if place.is_file():
        _check_wiki(place, data_dir / LOCK, None)
        logger.info("wiki1m: already there, verified")
        return
    path, commit = fetch(WIKI, data_dir / DOWNLOAD, place)
    try:
        _check_wiki(path, data_dir / LOCK, commit)
    except BadInput:
        path.unlink()
        raise
    place.parent.mkdir(parents=True, exist_ok=True)
    path.replace(place)


def _check_wiki(path: Path, lock: Path, commit: str | None) -> None:
    if (lines := _lines(path)) < WIKI.min_lines:
        published = f"the published file has {WIKI.min_lines}"
        raise BadInput(f"{path}: {lines} lines, but {published}; remove it if it is there, and run again")
    record(lock, WIKI, commit, check(lock, WIKI, path), path.stat().st_size)


def _lines(path: Path) -> int:
    """Lines of a file, with a last one that does not end."""
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def _row(name: str, files: Sequence[str], data_dir: Path, digest: str, terms: str) -> tuple:
    paths = [data_dir / file for file in files]
    return (name, len(paths), sum(map(_lines, paths)), sum(path.stat().st_size for path in paths), digest, terms)


def _table(rows: list[tuple]) -> str:
    cells = [_HEADER, *(tuple(f"{c:,}" if isinstance(c, int) else c for c in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [[f"{cell:{'>' if 1 <= column <= 3 else '<'}{widths[column]}}" for column, cell in enumerate(row)]
               for row in cells]  # fmt: skip
    return "\n".join("  ".join(row).rstrip() for row in aligned)


def main(argv: list[str] | None = None) -> None:
    parser = Parser(
        prog="python -m data.prepare",
        description="Download, verify and lay out training text and evaluation sets.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=described(LOCK),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(DEFAULT_NAMES)}")
    parser.add_argument("--data_dir", type=Path, default=Path("corpora"), metavar="DIR", help="default: corpora")
    args = parser.parse_args(argv)
    try:
        rows = prepare(args.names or DEFAULT_NAMES, args.data_dir)
    except OSError as error:
        message = f"cannot fill {args.data_dir}: {error}; free space or choose another --data_dir"
        raise unwritable(error, message) from error
    show(_table(rows), args.data_dir)


if __name__ == "__main__":
    run_command(main)
