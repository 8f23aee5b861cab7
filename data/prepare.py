"""Download, verify and lay out the corpora: `python -m data.prepare [NAME ...] [--data_dir DIR]`."""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from data.archive import extract
from data.hub import Source, check, fetch, measure, record
from errors import BadInput, run_command

_LOG = logging.getLogger(__name__)
REPO = "princeton-nlp/datasets-for-simcse"
ARCHIVE = Source(REPO, "senteval.tar", "senteval/downstream", "about 40 MB to download")
WIKI = Source(
    REPO, "wiki1m_for_simcse.txt", "text/wiki1m_for_simcse.txt", "about 110 MB", min_lines=1_000_000
)
SUMS = Path(__file__).with_name("SHA256SUMS")
LOCK = "prepare.lock.json"
DOWNLOAD = ".download"
NAMES = {
    "sts": f"STS12-16, STSBenchmark, SICK: evaluation; 6 MB in place, {ARCHIVE.size}",
    "transfer": f"MR, CR, SUBJ, MPQA, SST, TREC, MRPC: evaluation; 9 MB in place, {ARCHIVE.size}",
    "wiki1m": f"1,000,000 sentences of English Wikipedia: training; {WIKI.size}",
}
_PREFIXES = ("senteval", "SentEval", "downstream")
_NOTE = re.compile(r"readme|licen[sc]e", re.IGNORECASE)


@dataclass(frozen=True)
class EvalSet:
    """One evaluation set of the archive; `terms` are those its authors state."""

    name: str
    part: str
    folder: str
    terms: str


SETS = (
    EvalSet("STS12", "sts", "STS/STS12-en-test", "research; MSRpar, MSRvid: Microsoft Research terms"),
    EvalSet("STS13", "sts", "STS/STS13-en-test", "research; see 00-readme.txt"),
    EvalSet("STS14", "sts", "STS/STS14-en-test", "research; see 00-readme.txt"),
    EvalSet("STS15", "sts", "STS/STS15-en-test", "research; answers-forums: CC BY-SA 3.0"),
    EvalSet("STS16", "sts", "STS/STS16-en-test", "CC BY-SA 3.0 and others; see LICENSE.txt"),
    EvalSet("STSBenchmark", "sts", "STS/STSBenchmark", "scores: CC BY-SA 4.0; texts: see LICENSE.txt"),
    EvalSet("SICK", "sts", "SICK", "CC BY-NC-SA 3.0"),
    EvalSet("MR", "transfer", "MR", "CC BY 4.0"),
    EvalSet("CR", "transfer", "CR", "none stated (Hu and Liu 2004)"),
    EvalSet("SUBJ", "transfer", "SUBJ", "CC BY 4.0"),
    EvalSet("MPQA", "transfer", "MPQA", "none stated (Wiebe et al. 2005)"),
    EvalSet("SST", "transfer", "SST/binary", "none stated (Socher et al. 2013)"),
    EvalSet("TREC", "transfer", "TREC", "none stated (Li and Roth 2002)"),
    EvalSet("MRPC", "transfer", "MRPC", "research; Microsoft Research terms"),
)
_WIKI_TERMS = "Wikipedia text: CC BY-SA 3.0 and GFDL; none stated for the selection"


def read_pinned(path: Path = SUMS) -> dict[str, str]:
    """The expected digests, from a file in the format of `sha256sum`: path below the data folder to digest."""
    lines = path.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def prepare(names: Sequence[str], data_dir: Path, pinned: Mapping[str, str] | None = None) -> list[tuple]:
    """Bring every named part into `data_dir`, and return the rows of the final table.

    Raises:
        BadInput: Something cannot be downloaded or is not what it should be; nothing of that part is in place.
    """
    pinned = read_pinned() if pinned is None else pinned
    sets = [one for one in SETS if one.part in names]
    todo = {one.part for one in sets if not _complete(one, data_dir, pinned)}
    for name in dict.fromkeys(one.part for one in sets if one.part not in todo):
        _LOG.info("%s: already there, verified", name)
    if todo:
        _install_sets([one for one in sets if one.part in todo], data_dir, pinned)
    if "wiki1m" in names:
        _install_wiki(data_dir)
    shutil.rmtree(data_dir / DOWNLOAD, ignore_errors=True)
    rows = [
        _row(one.name, [data_dir / path for path in _files(one, pinned)], "pinned", one.terms) for one in sets
    ]
    return rows + [
        _row("wiki1m", [data_dir / WIKI.target], "recorded", _WIKI_TERMS) for _ in {"wiki1m"} & set(names)
    ]


def _files(one: EvalSet, pinned: Mapping[str, str]) -> dict[str, str]:
    folder = f"{ARCHIVE.target}/{one.folder}/"
    return {path: digest for path, digest in pinned.items() if path.startswith(folder)}


def _complete(one: EvalSet, root: Path, pinned: Mapping[str, str]) -> bool:
    """Whether all files of a set are there; one that is there with other content is an error."""
    files = _files(one, pinned)
    present = [path for path in files if (root / path).is_file()]
    for path in present:
        if (found := measure(root / path).sha256) != files[path]:
            raise BadInput(
                f"{root / path}: sha256 is {found}, expected {files[path]} ({SUMS.name}); "
                "not the published file: remove it and run again"
            )
    return len(present) == len(files)


def _install_sets(sets: list[EvalSet], data_dir: Path, pinned: Mapping[str, str]) -> None:
    download = data_dir / DOWNLOAD
    archive, commit = fetch(ARCHIVE, download, data_dir / ARCHIVE.target)
    found = measure(archive)
    wanted = {path for one in sets for path in _files(one, pinned)}
    with TemporaryDirectory(dir=download, prefix="staged-") as staged:
        try:
            check(data_dir / LOCK, ARCHIVE, archive, found)
            done = extract(archive, Path(staged), lambda member: _place_of(member, wanted))
            missing = sorted(wanted.difference(done.files))
            if missing:
                raise BadInput(f"{archive}: lacks {len(missing)} expected files, the first is {missing[0]}")
            for one in sets:
                _complete(one, Path(staged), pinned)
        except BadInput:
            archive.unlink()  # kept, it would be found whole and refused again for ever
            raise
        record(data_dir / LOCK, ARCHIVE, commit, found)
        _move(Path(staged) / "senteval", data_dir / "senteval")
    archive.unlink()
    _LOG.info("%s: %d files placed, %d others ignored", ARCHIVE.file, len(done.files), done.ignored)
    _LOG.info("%s: archive removed, its files are in %s", ARCHIVE.file, data_dir / ARCHIVE.target)


def _place_of(member: str, wanted: set[str]) -> str | None:
    """Where an archive member belongs, whichever prefix it has; None for what no wanted set reads."""
    parts = member.split("/")
    while len(parts) > 1 and parts[0] in _PREFIXES:
        parts = parts[1:]
    path = "/".join([ARCHIVE.target, *parts])
    folder = path.rpartition("/")[0] + "/"
    is_note = _NOTE.search(parts[-1]) and any(other.startswith(folder) for other in wanted)
    return path if path in wanted or is_note else None


def _move(staged: Path, place: Path) -> None:
    """Rename into place: a whole folder at once where there is none, else file by file beside the others."""
    if staged.is_dir() and place.is_dir():
        for child in sorted(staged.iterdir()):
            _move(child, place / child.name)
    else:
        staged.replace(place)


def _install_wiki(data_dir: Path) -> None:
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
        raise BadInput(f"{path}: {found.lines} lines, expected at least {WIKI.min_lines}; remove it, run again")
    check(lock, WIKI, path, found)
    record(lock, WIKI, commit, found)


def _row(name: str, files: list[Path], digest: str, terms: str) -> tuple:
    sizes = [measure(file) for file in files]
    return name, len(files), sum(s.lines for s in sizes), sum(s.size for s in sizes), digest, terms


def main(argv: list[str] | None = None) -> None:
    listing = "\n".join(f"  {name:9} {text}" for name, text in NAMES.items())
    terms = "\n".join(f"  {name:13} {text}" for name, text in _terms())
