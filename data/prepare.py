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
from data.archive import Extracted, extract
from data.hub import check, fetch, measure, record
from data.sources import (
    ARCHIVE,
    NAMES,
    SETS,
    WIKI,
    WIKI_TERMS,
    EvalSet,
    describe,
    missing_files,
    place_of,
    read_pinned,
)

_LOG = logging.getLogger(__name__)
DEFAULT_NAMES = ("sts", "wiki1m")
LOCK = "prepare.lock.json"
DOWNLOAD = ".download"
_HEADER = ("set", "files", "lines", "bytes", "digest", "terms of use")


def prepare(names: Sequence[str], data_dir: Path, pinned: Mapping[str, str] | None = None) -> list[tuple]:
    """Bring every named part into `data_dir`.

    Args:
        names: Some of `NAMES`.
        data_dir: The folder to fill, made if it is not there.
        pinned: The expected digests; the shipped ones if None.

    Returns:
        The rows of the final table.

    Raises:
        BadInput: Something cannot be downloaded or is not as expected; nothing of that part is in place.
    """
    if unknown := sorted(set(names).difference(NAMES)):
        raise BadInput(f"unknown name {unknown[0]!r}; the names are {', '.join(NAMES)}")
    pinned = read_pinned() if pinned is None else pinned
    sets = [one for one in SETS if one.part in names]
    rows = []
    if sets:
        _bring_sets(sets, data_dir, pinned)
        rows += [_row(one.name, one.files(pinned), data_dir, "pinned", one.terms) for one in sets]
    if "wiki1m" in names:
        _bring_wiki(data_dir)
        rows.append(_row("wiki1m", [WIKI.target], data_dir, "recorded", WIKI_TERMS))
    if "sts_texts" in names:
        for line in sts_texts.write(data_dir):
            _LOG.info("%s", line)
        rows.append(_row("sts_texts", [sts_texts.TARGET], data_dir, "made here", "those of the STS sets"))
    shutil.rmtree(data_dir / DOWNLOAD, ignore_errors=True)
    return rows


def _row(name: str, files: Sequence[str], data_dir: Path, digest: str, terms: str) -> tuple:
    sizes = [measure(data_dir / file) for file in files]
    return (
        name,
        len(sizes),
        sum(size.lines for size in sizes),
        sum(size.size for size in sizes),
        digest,
        terms,
    )


def _bring_sets(sets: list[EvalSet], data_dir: Path, pinned: Mapping[str, str]) -> None:
    advice = f"this is not the published file: remove it from {data_dir} and run again"
    todo = {one.part for one in sets if missing_files(one, data_dir, pinned, advice)}
    for part in dict.fromkeys(one.part for one in sets):
        if part not in todo:
            _LOG.info("%s: already there, verified", part)
    if not todo:
        return
    archive, commit = fetch(ARCHIVE, data_dir / DOWNLOAD, data_dir / ARCHIVE.target)
    found = measure(archive)
    with TemporaryDirectory(dir=data_dir / DOWNLOAD, prefix="staged-") as staged:
        try:
            check(data_dir / LOCK, ARCHIVE, archive, found)
            done = _unpack([one for one in sets if one.part in todo], archive, Path(staged), pinned)
        except BadInput:
            archive.unlink()  # kept, it would be found whole and refused again for ever
            raise
        record(data_dir / LOCK, ARCHIVE, commit, found)
        _move(Path(staged) / "senteval", data_dir / "senteval")
    archive.unlink()
    _LOG.info("%s: %d files kept, %d others ignored", ARCHIVE.file, len(done.files), done.ignored)
    _LOG.info("%s: archive removed, its files are in %s", ARCHIVE.file, data_dir / ARCHIVE.target)


def _unpack(sets: list[EvalSet], archive: Path, staged: Path, pinned: Mapping[str, str]) -> Extracted:
    wanted = {path for one in sets for path in one.files(pinned)}
    done = extract(archive, staged, lambda member: place_of(member, wanted))
    advice = f"{ARCHIVE.file} is not the published one: set HF_ENDPOINT to a mirror, or lay files by hand"
    for one in sets:
        if missing := missing_files(one, staged, pinned, advice):
            raise BadInput(f"{archive.name}: lacks {len(missing)} files of {one.name}: {missing[0]} ...; {advice}")
    return done


def _move(staged: Path, place: Path) -> None:
    """Rename into place: a whole folder at once where there is none, else file by file beside the others."""
    if staged.is_dir() and place.is_dir():
        for child in sorted(staged.iterdir()):
            _move(child, place / child.name)
    else:
        staged.replace(place)


def _bring_wiki(data_dir: Path) -> None:
    place, lock = data_dir / WIKI.target, data_dir / LOCK
    if place.is_file():
        _check_wiki(place, lock, None)
        _LOG.info("wiki1m: already there, verified")
        return
    path, commit = fetch(WIKI, data_dir / DOWNLOAD, place)
    try:
        _check_wiki(path, lock, commit)
    except BadInput:
        path.unlink()
        raise
    place.parent.mkdir(parents=True, exist_ok=True)
    path.replace(place)


def _check_wiki(path: Path, lock: Path, commit: str | None) -> None:
    found = measure(path)
    if found.lines < WIKI.min_lines:
        expected = f"the published file has {WIKI.min_lines}"
        raise BadInput(f"{path}: {found.lines} lines, but {expected}; remove it if it is there, and run again")
    check(lock, WIKI, path, found)
    record(lock, WIKI, commit, found)


def _table(rows: list[tuple]) -> str:
    cells = [_HEADER, *(tuple(f"{c:,}" if isinstance(c, int) else c for c in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEADER))]
    aligned = (
        "  ".join(f"{c:>{w}}" if 1 <= i <= 3 else f"{c:{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in aligned)


def main(argv: list[str] | None = None) -> None:
    parser = Parser(
        prog="python -m data.prepare",
        description="Download, verify and lay out training text and evaluation sets.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=describe(LOCK),
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
