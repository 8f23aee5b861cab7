"""Download, verify and lay out the corpora: `python -m data.prepare [NAME ...] [--data_dir DIR]`.

`huggingface_hub` does the transfer, so `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE` and proxies work
as usual, and an interrupted transfer resumes. Evaluation files are checked against the digests of
this repository, the others against those that the hub announces.
"""

import gzip
import hashlib
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

# HTTPError is the base class of the HTTP client's errors: refused, timed out, cut off.
from huggingface_hub.errors import HTTPError, XetDownloadError

from common.errors import BadInput, brief, run_command, unwritable
from common.files import sha256, writing
from common.flags import Parser
from common.streams import show
from data.lines import numbered_lines

SUMS = Path(__file__).with_name("SHA256SUMS")
REPO = "princeton-nlp/datasets-for-simcse"
DOWNLOAD = ".download"  # below the data folder
MAX_BYTES = 2**28  # of the archive's files: some hundred, 40 MB
STS_TEXTS = "text/sts_unlabelled.txt"
WIKI_TERMS = "Wikipedia text, CC BY-SA 3.0 and GFDL; none stated for the selection"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"^(\./|senteval/|SentEval/|downstream/)*")  # of the archive's members
_NOTE = re.compile(r"readme|licen[sc]e", re.IGNORECASE)  # terms of use, beside the files of a set

DEFAULT_NAMES = ("sts", "wiki1m")
NAMES = ("sts", "transfer", "sts_texts", "wiki1m")
HELP = f"""names:
  sts        STS12-16, STSBenchmark, SICK: evaluation; 6 MB, from an archive of about 40 MB
  transfer   MR, CR, SUBJ, MPQA, SST, TREC, MRPC: evaluation; 9 MB, from the same archive
  sts_texts  the texts of `sts` without their scores, for training: ConSERT's
  wiki1m     1,000,000 sentences of English Wikipedia: training; about 110 MB

The files come from the Hugging Face hub ({REPO}) and go to
DIR/senteval/downstream and DIR/text; the command prints the terms of use of each set. Evaluation
files must match data/{SUMS.name}, other downloads the digest that the hub announces. Without a
connection, copy the files there by hand and run the command to verify them."""


@dataclass(frozen=True)
class HubFile:
    """A file of the dataset on the hub, and its path below the data folder."""

    file: str
    target: str
    min_lines: int = 0


ARCHIVE = HubFile("senteval.tar", "senteval/downstream")
WIKI = HubFile("wiki1m_for_simcse.txt", "text/wiki1m_for_simcse.txt", min_lines=1_000_000)


class EvaluationSet(NamedTuple):
    """A folder of the archive; `terms` are those its authors state."""

    name: str
    part: str
    folder: str
    terms: str

    def files(self) -> dict[str, str]:
        """Path below the data folder -> sha256, of the files in SHA256SUMS."""
        folder = f"{ARCHIVE.target}/{self.folder}/"
        return {path: digest for path, digest in pinned().items() if path.startswith(folder)}


_MIXED = "MSRpar, MSRvid: Microsoft Research terms; others: none stated"
_STS15 = "answers-forums: CC BY-SA 3.0; others: none stated"
_STSB = "scores CC BY-SA 4.0; texts: see its LICENSE.txt"
SETS = (
    EvaluationSet("STS12", "sts", "STS/STS12-en-test", _MIXED),
    EvaluationSet("STS13", "sts", "STS/STS13-en-test", "none stated; see its 00-readme.txt"),
    EvaluationSet("STS14", "sts", "STS/STS14-en-test", "none stated; see its 00-readme.txt"),
    EvaluationSet("STS15", "sts", "STS/STS15-en-test", _STS15),
    EvaluationSet("STS16", "sts", "STS/STS16-en-test", "CC BY-SA 3.0 and others; see LICENSE.txt"),
    EvaluationSet("STSBenchmark", "sts", "STS/STSBenchmark", _STSB),
    EvaluationSet("SICK", "sts", "SICK", "CC BY-NC-SA 3.0: not commercial"),
    EvaluationSet("MR", "transfer", "MR", "CC BY 4.0"),
    EvaluationSet("CR", "transfer", "CR", "none stated (Hu and Liu 2004)"),
    EvaluationSet("SUBJ", "transfer", "SUBJ", "CC BY 4.0"),
    EvaluationSet("MPQA", "transfer", "MPQA", "none stated (Wiebe et al. 2005)"),
    EvaluationSet("SST", "transfer", "SST/binary", "none stated (Socher et al. 2013)"),
    EvaluationSet("TREC", "transfer", "TREC", "none stated (Li and Roth 2002)"),
    EvaluationSet("MRPC", "transfer", "MRPC", "Microsoft Research terms: research use"),
)


def pinned() -> dict[str, str]:
    """Path below the data folder -> sha256, from a file in the format of `sha256sum`."""
    lines = SUMS.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def prepare(names: Sequence[str], data_dir: Path) -> list[str]:
    """Download the parts with these `NAMES` into `data_dir`; return a line about each set.

    BadInput if a part cannot be downloaded or differs from what is expected; nothing of it is put
    in place.
    """
    if unknown := sorted(set(names).difference(NAMES)):
        raise BadInput(f"unknown name {unknown[0]!r}; choose from {', '.join(NAMES)}")
    sets = [some for some in SETS if some.part in names]
    _prepare_sets(sets, data_dir)
    lines = [_line(some.name, [*some.files()], data_dir, "pinned", some.terms) for some in sets]
    if "wiki1m" in names:
        _prepare_wiki(data_dir)
        lines.append(_line("wiki1m", [WIKI.target], data_dir, "not pinned", WIKI_TERMS))
    if "sts_texts" in names:
        write_sts_texts(data_dir)
        terms = "those of the STS sets"
        lines.append(_line("sts_texts", [STS_TEXTS], data_dir, "generated", terms))
    with suppress(OSError):  # not empty: another download was interrupted, or goes on
        (data_dir / DOWNLOAD).rmdir()
    return lines


def _prepare_sets(sets: Sequence[EvaluationSet], data_dir: Path) -> None:
    """Unpack the sets of which a file is missing; all are checked before one is written."""
    wanted: dict[str, str] = {}
    for some in sets:
        files = some.files()
        present = {path for path in files if (data_dir / path).is_file()}
        for path in present:
            advice = f"not the published file: remove it from {data_dir} and run again"
            _check_digest(path, sha256(data_dir / path), files[path], advice)
        if len(present) < len(files):
            wanted |= files
    if not wanted:
        return
    by_hand = f"unpack it by hand so that {data_dir / min(wanted)} exists"
    with _downloaded(ARCHIVE, data_dir, by_hand) as archive:
        unpacked = unpack(archive, wanted.keys())
        mirror = "set HF_ENDPOINT to a mirror, or copy the files by hand"
        advice = f"{ARCHIVE.file} is not the published file: {mirror}"
        if missing := sorted(wanted.keys() - unpacked.keys()):
            said = f"{len(missing)} files missing: {missing[0]} ..."
            raise BadInput(f"{archive.name}: {said}; {advice}")
        for path, expected in wanted.items():
            _check_digest(path, hashlib.sha256(unpacked[path]).hexdigest(), expected, advice)
        for path, content in unpacked.items():
            with writing(data_dir / path) as part:
                part.write_bytes(content)


def _check_digest(path: str, digest: str, expected: str, advice: str) -> None:
    if digest != expected:
        said = f"sha256 is {digest}, expected {expected} (data/{SUMS.name})"
        raise BadInput(f"{path}: {said}; {advice}")


def unpack(archive: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The wanted files of a tar archive and the notes beside them: path -> content.

    An archive is untrusted: only regular files whose whole path is known are read.

    Raises:
        BadInput: the archive is damaged, too large, or has two files for one path.
    """
    folders = {path.rpartition("/")[0] for path in wanted}
    contents: dict[str, bytes] = {}
    left = MAX_BYTES
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = f"{ARCHIVE.target}/{_PREFIX.sub('', member.name)}"
                folder, _, name = path.rpartition("/")
                is_note = folder in folders and _NOTE.search(name)
                file = tar.extractfile(member) if member.isreg() else None
                if file is None or not (path in wanted or is_note):
                    continue
                left -= member.size
                if left < 0:
                    raise tarfile.TarError(f"over {MAX_BYTES} bytes")
                if path in contents:
                    raise tarfile.TarError(f"{path} comes twice")
                contents[path] = file.read()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        said = f"incomplete or not the expected archive ({error})"
        raise BadInput(f"{archive}: {said}; remove it, run again") from error
    return contents


def _prepare_wiki(data_dir: Path) -> None:
    """Download the sentences unless they are in place, and check their number."""
    target = data_dir / WIKI.target
    if target.is_file():
        _check_length(target)
        return
    with _downloaded(WIKI, data_dir, f"copy it by hand to {target}") as path:
        _check_length(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)


def _check_length(path: Path) -> None:
    if (lines := _lines(path)) < WIKI.min_lines:
        said = f"{lines} lines, but the published file has {WIKI.min_lines}"
        raise BadInput(f"{path}: {said}; run again, after removing it if it is still there")


@contextmanager
def _downloaded(source: HubFile, data_dir: Path, by_hand: str) -> Iterator[Path]:
    """Yield a file of the hub in its own folder, which goes if the block ends or refuses.

    Anything else that ends it, such as a signal or a lost connection, leaves the folder, so that
    the next command resumes. The library's cache is not used.

    Raises:
        BadInput: the download fails, with the advice `by_hand` for users without a connection; the
            content is not what the hub announced.
    """
    folder = data_dir / DOWNLOAD / source.file
    # The library reads the variable only on import.
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    where: dict[str, Any] = {"repo_type": "dataset", "endpoint": endpoint}
    url = hf_hub_url(REPO, source.file, **where)
    try:
        head = get_hf_file_metadata(url, endpoint=endpoint)
        where["revision"] = head.commit_hash
        path = Path(hf_hub_download(REPO, source.file, local_dir=folder, **where))
    except (HTTPError, OSError, ValueError, XetDownloadError) as error:
        what = f"cannot download {source.file} of dataset repository {REPO} ({url})"
        advice = "run again to resume, set HF_ENDPOINT to a mirror or HF_TOKEN to a token"
        raise BadInput(f"{what}: {brief(error)}; {advice}, or {by_hand}") from error
    try:
        # The ETag of a large file is its sha256, the only digest to check a first download against.
        if _SHA256.fullmatch(head.etag or "") and (digest := sha256(path)) != head.etag:
            said = f"sha256 is {digest}, but the hub announced {head.etag}"
            raise BadInput(f"{url}: {said}; file removed, run again")
        yield path
    except BadInput:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def write_sts_texts(data_dir: Path) -> None:
    """Write both sentences of every pair of the seven STS sets, one per line: ConSERT's text.

    ConSERT (arXiv 2105.11741) section 4.1 mixes "the unlabeled texts from these datasets"; Table 1
    counts 89,192. These are all pairs in SentEval's files, with the unscored ones of STS15 and
    STS16 and the test splits, so a model trained on them has seen its test texts.
    """
    root = data_dir / ARCHIVE.target
    columns: dict[Path, int] = {}  # of the first text in each file
    for year in range(12, 17):
        files = sorted((root / f"STS/STS{year}-en-test").glob("STS.input.*"))
        columns |= dict.fromkeys(files, 0)
    for split in ("train", "dev", "test"):
        columns[root / f"STS/STSBenchmark/sts-{split}.csv"] = 5
    for split in ("train", "trial", "test_annotated"):
        columns[root / f"SICK/SICK_{split}.txt"] = 1
    with writing(data_dir / STS_TEXTS) as part, part.open("w", encoding="utf-8") as stream:
        for path, column in columns.items():
            for number, line in numbered_lines(path):
                if path.parent.name == "SICK" and number == 1:  # the header
                    continue
                texts = [" ".join(text.split()) for text in line.split("\t")[column : column + 2]]
                stream.writelines(f"{text}\n" for text in texts if text)


def _lines(path: Path) -> int:
    """Count the lines of a file, including an unterminated last one."""
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def _line(name: str, files: Sequence[str], data_dir: Path, digest: str, terms: str) -> str:
    """A set; `digest`: how the digests of its files are known."""
    paths = [data_dir / file for file in files]
    lines, size = sum(map(_lines, paths)), sum(path.stat().st_size for path in paths)
    counts = f"{len(paths)} files, {lines:,} lines, {size:,} bytes"
    return f"{name}: {counts}; digest {digest}; terms of use: {terms}"


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m data.prepare",
        description="Download, verify and lay out training text and evaluation sets.",
        epilog=HELP,
    )
    default = f"default: {' '.join(DEFAULT_NAMES)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=default)
    parser.add_argument("--data_dir", default="corpora", metavar="DIR", help="folder for the data")
    args = parser.parse_args(argv)
    try:
        lines = prepare(args.names or DEFAULT_NAMES, Path(args.data_dir))
    except OSError as error:
        message = f"cannot fill {args.data_dir}: {error}; free space or choose another --data_dir"
        raise unwritable(error, message) from error
    show("\n".join(lines))


if __name__ == "__main__":
    run_command(main)
