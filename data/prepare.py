"""Download, verify and lay out the corpora: `python -m data.prepare [NAME ...] [--data_dir DIR]`.

`huggingface_hub` does the transfer, so `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, proxies and the
progress bar work as usual, and an interrupted transfer resumes. Evaluation files are checked
against the digests of this repository, other files against those that the hub announces.
"""

import gzip
import logging
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

# HTTPError is the base class of the HTTP client's errors: refused, timed out, cut off.
from huggingface_hub.errors import HTTPError, XetDownloadError

from common.errors import BadInput, brief, run_command, unwritable
from common.files import sha256, writing
from common.flags import Parser
from common.streams import show
from data.lines import numbered_lines

logger = logging.getLogger(__name__)
DEFAULT_NAMES = ("sts", "wiki1m")
DOWNLOAD = ".download"
MAX_BYTES = 2**28  # unpacked: some hundred files, 40 MB


@dataclass(frozen=True)
class HubFile:
    """A file on the hub, and its path below the data folder."""

    repo: str
    file: str
    target: str
    min_lines: int = 0


_REPO = "princeton-nlp/datasets-for-simcse"
ARCHIVE = HubFile(_REPO, "senteval.tar", "senteval/downstream")
WIKI = HubFile(_REPO, "wiki1m_for_simcse.txt", "text/wiki1m_for_simcse.txt", min_lines=1_000_000)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FAILURES = (HTTPError, OSError, ValueError, XetDownloadError)
WIKI_TERMS = "Wikipedia text, CC BY-SA 3.0 and GFDL; none stated for the selection"
SUMS = Path(__file__).with_name("SHA256SUMS")
STS_TEXTS = "text/sts_unlabelled.txt"
_PREFIXES = ("senteval", "SentEval", "downstream")
_NOTE = re.compile(r"readme|licen[sc]e", re.IGNORECASE)

# The names that the command accepts.
NAMES = {
    "sts": "STS12-16, STSBenchmark, SICK: evaluation; 6 MB, from an archive of about 40 MB",
    "transfer": "MR, CR, SUBJ, MPQA, SST, TREC, MRPC: evaluation; 9 MB, from the same archive",
    "sts_texts": "the sentences of the STS sets without their scores: ConSERT's training text; made from `sts`",
    "wiki1m": "1,000,000 sentences of English Wikipedia: training; about 110 MB",
}


@dataclass(frozen=True)
class EvalSet:
    """One evaluation set of the archive; `terms` are those its authors state."""

    name: str
    part: str
    folder: str
    terms: str

    def files(self) -> dict[str, str]:
        """The entries of `pinned` that belong to this set."""
        folder = f"{ARCHIVE.target}/{self.folder}/"
        return {path: digest for path, digest in pinned().items() if path.startswith(folder)}


SETS = (
    EvalSet(
        "STS12",
        "sts",
        "STS/STS12-en-test",
        "MSRpar, MSRvid: Microsoft Research terms; others: none stated",
    ),
    EvalSet("STS13", "sts", "STS/STS13-en-test", "none stated; see its 00-readme.txt"),
    EvalSet("STS14", "sts", "STS/STS14-en-test", "none stated; see its 00-readme.txt"),
    EvalSet(
        "STS15", "sts", "STS/STS15-en-test", "answers-forums: CC BY-SA 3.0; others: none stated"
    ),
    EvalSet("STS16", "sts", "STS/STS16-en-test", "CC BY-SA 3.0 and others; see its LICENSE.txt"),
    EvalSet(
        "STSBenchmark", "sts", "STS/STSBenchmark", "scores CC BY-SA 4.0; texts: see its LICENSE.txt"
    ),
    EvalSet("SICK", "sts", "SICK", "CC BY-NC-SA 3.0: not commercial"),
    EvalSet("MR", "transfer", "MR", "CC BY 4.0"),
    EvalSet("CR", "transfer", "CR", "none stated (Hu and Liu 2004)"),
    EvalSet("SUBJ", "transfer", "SUBJ", "CC BY 4.0"),
    EvalSet("MPQA", "transfer", "MPQA", "none stated (Wiebe et al. 2005)"),
    EvalSet("SST", "transfer", "SST/binary", "none stated (Socher et al. 2013)"),
    EvalSet("TREC", "transfer", "TREC", "none stated (Li and Roth 2002)"),
    EvalSet("MRPC", "transfer", "MRPC", "Microsoft Research terms: research use"),
)


def prepare(names: Sequence[str], data_dir: Path) -> list[str]:
    """Download the parts with these `NAMES` into `data_dir`; return a line about each set.

    BadInput if a part cannot be downloaded or differs from what is expected; nothing of it is put
    in place.
    """
    if unknown := sorted(set(names).difference(NAMES)):
        raise BadInput(f"unknown name {unknown[0]!r}; choose from {', '.join(NAMES)}")
    sets = [some for some in SETS if some.part in names]
    _prepare_sets(sets, data_dir)
    lines = [_line(some.name, some.files(), data_dir, "pinned", some.terms) for some in sets]
    if "wiki1m" in names:
        _prepare_file(WIKI, data_dir)
        lines.append(_line("wiki1m", [WIKI.target], data_dir, "not pinned", WIKI_TERMS))
    if "sts_texts" in names:
        write_sts_texts(data_dir)
        lines.append(
            _line("sts_texts", [STS_TEXTS], data_dir, "generated", "those of the STS sets")
        )
    with suppress(OSError):  # not empty: another download was interrupted, or goes on
        (data_dir / DOWNLOAD).rmdir()
    return lines


def _staging(source: HubFile, data_dir: Path) -> Path:
    """The folder that a file is downloaded to."""
    return data_dir / DOWNLOAD / source.target.replace("/", "-")


def _prepare_sets(sets: list[EvalSet], data_dir: Path) -> None:
    advice = f"not the published file: remove it from {data_dir} and run again"
    todo = {some.part for some in sets if missing_files(some, data_dir, advice)}
    for part in dict.fromkeys(some.part for some in sets if some.part not in todo):
        logger.info("%s: already present, verified", part)
    if not todo:
        return
    sets, folder = [some for some in sets if some.part in todo], _staging(ARCHIVE, data_dir)
    archive = _fetch(
        ARCHIVE,
        folder,
        f"unpack it by hand so that {data_dir / next(iter(sets[0].files()))} exists",
    )
    wanted = {path for some in sets for path in some.files()}
    advice = f"{ARCHIVE.file} is not the published file: set HF_ENDPOINT to a mirror, or copy the files by hand"
    with TemporaryDirectory(dir=folder, prefix="staged-") as staged:
        try:
            kept = extract(archive, Path(staged), wanted)
            if missing := [
                path for some in sets for path in missing_files(some, Path(staged), advice)
            ]:
                raise BadInput(
                    f"{archive.name}: {len(missing)} files missing: {missing[0]} ...; {advice}"
                )
        except BadInput:
            archive.unlink()  # otherwise the next run would refuse it again
            raise
        source, target = Path(staged) / "senteval", data_dir / "senteval"
        shutil.copytree(
            source, target, copy_function=os.replace, dirs_exist_ok=True
        )  # each file at once
    shutil.rmtree(folder)
    logger.info("%s: extracted %d files to %s", ARCHIVE.file, len(kept), data_dir / ARCHIVE.target)


def pinned() -> dict[str, str]:
    """Read the expected digests, in the format of `sha256sum`: path below the data folder -> sha256."""
    lines = SUMS.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def missing_files(eval_set: EvalSet, root: Path, advice: str) -> list[str]:
    """Return the files of a set missing below `root`; BadInput for one with different content."""
    missing = []
    for path, expected in eval_set.files().items():
        if not (root / path).is_file():
            missing.append(path)
        elif (digest := sha256(root / path)) != expected:
            raise BadInput(
                f"{path}: sha256 is {digest}, expected {expected} (data/{SUMS.name}); {advice}"
            )
    return missing


def extract(archive: Path, target: Path, wanted: Collection[str]) -> list[str]:
    """Write the files of a tar archive that `path_of` names below `target`; returns their paths.

    An archive is untrusted, so `path_of` alone decides where its files go.

    Raises:
        BadInput: the archive is damaged, too large, or has two files for one path.
    """
    written, left = [], MAX_BYTES
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = path_of(member.name, wanted)
                if path is None or not member.isreg():
                    continue
                left -= member.size
                if left < 0 or path in written:
                    raise ValueError(
                        f"{path} comes twice" if path in written else f"over {MAX_BYTES} bytes"
                    )
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                (target / path).write_bytes(tar.extractfile(member).read())
                written.append(path)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise BadInput(
            f"{archive}: incomplete or not the expected archive ({error}); remove it, run again"
        ) from error
    return written


def path_of(member: str, wanted: Collection[str]) -> str | None:
    """Return where an archive member belongs, whatever its prefix; None if no wanted set has it.

    Notes with terms of use are extracted too; nothing reads them, so they are not pinned.
    """
    parts = [part for part in member.split("/") if part not in ("", ".")]
    while len(parts) > 1 and parts[0] in _PREFIXES:
        parts = parts[1:]
    path = "/".join([ARCHIVE.target, *parts])
    folder = path.rpartition("/")[0] + "/"
    is_note = _NOTE.search(path.rpartition("/")[2]) and any(
        other.startswith(folder) for other in wanted
    )
    return path if path in wanted or is_note else None


def _prepare_file(source: HubFile, data_dir: Path) -> None:
    """Download a file that is not in place, and check its size."""
    target, folder = data_dir / source.target, _staging(source, data_dir)
    present = target.is_file()
    path = target if present else _fetch(source, folder, f"copy it by hand to {target}")
    if (lines := _lines(path)) < source.min_lines:
        if not present:
            path.unlink()
        said = f"{lines} lines, but the published file has {source.min_lines}"
        raise BadInput(f"{path}: {said}; run again, after removing it if it is still there")
    if present:
        logger.info("%s: already present", target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
    shutil.rmtree(folder)


def _fetch(source: HubFile, folder: Path, by_hand: str) -> Path:
    """Download `source` into `folder`, unless an earlier run has done so; the library's cache is
    not used.

    BadInput if the download fails, with the advice `by_hand` for users without a connection, or if
    the content is not what the hub announced.
    """
    endpoint = (
        os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    )  # the library reads it only on import
    logging.getLogger("httpx2").setLevel(
        logging.WARNING
    )  # its request lines would show signed URLs
    where = {"repo_type": "dataset", "endpoint": endpoint}
    url = hf_hub_url(source.repo, source.file, **where)
    try:
        head = get_hf_file_metadata(url, endpoint=endpoint)
        path = Path(
            hf_hub_download(
                source.repo, source.file, revision=head.commit_hash, local_dir=folder, **where
            )
        )
    except _FAILURES as error:
        what = f"cannot download {source.file} of dataset repository {source.repo} ({url})"
        advice = "run again to resume, set HF_ENDPOINT to a mirror or HF_TOKEN to a token"
        raise BadInput(f"{what}: {brief(error)}; {advice}, or {by_hand}") from error
    # The ETag of a large file is its sha256, the only digest to check a first download against.
    if _SHA256.fullmatch(head.etag or "") and (digest := sha256(path)) != head.etag:
        path.unlink()
        raise BadInput(
            f"{url}: sha256 is {digest}, but the hub announced {head.etag}; file removed, run again"
        )
    return path


def write_sts_texts(data_dir: Path) -> None:
    """Write both sentences of every pair of the seven STS sets, one per line, without scores:
    ConSERT's training text.

    ConSERT (arXiv 2105.11741) section 4.1 mixes "the unlabeled texts from these datasets"; Table 1
    counts 89,192. These are all pairs in SentEval's files, with the unscored ones of STS15 and
    STS16 and the test splits, so a model trained on them has seen its test texts.
    """
    root = data_dir / ARCHIVE.target
    years = [
        path
        for year in range(12, 17)
        for path in sorted((root / f"STS/STS{year}-en-test").glob("STS.input.*"))
    ]
    stsb = [root / f"STS/STSBenchmark/sts-{split}.csv" for split in ("train", "dev", "test")]
    sick = [root / f"SICK/SICK_{split}.txt" for split in ("train", "trial", "test_annotated")]
    files = dict.fromkeys(years, 0) | dict.fromkeys(stsb, 5) | dict.fromkeys(sick, 1)
    count = 0
    with (
        writing(data_dir / STS_TEXTS) as part,
        part.open("w", encoding="utf-8", newline="\n") as stream,
    ):
        for path, column in files.items():
            for number, line in numbered_lines(path):
                if path in sick and number == 1:  # the header
                    continue
                sentences = [
                    " ".join(text.split())
                    for text in line.split("\t")[column : column + 2]
                    if text.strip()
                ]
                stream.writelines(f"{sentence}\n" for sentence in sentences)
                count += len(sentences)
    logger.info("%s: %s sentences (the paper: 89,192)", data_dir / STS_TEXTS, f"{count:,}")


def _lines(path: Path) -> int:
    """Count the lines of a file, including an unterminated last one."""
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def _line(name: str, files: Collection[str], data_dir: Path, digest: str, terms: str) -> str:
    """A set; `digest`: how the digests of its files are known."""
    paths = [data_dir / file for file in files]
    lines, size = sum(map(_lines, paths)), sum(path.stat().st_size for path in paths)
    return f"{name}: {len(paths)} files, {lines:,} lines, {size:,} bytes; digest {digest}; terms of use: {terms}"


def described() -> str:
    """Return names, terms and folders for `--help`."""
    terms = [(some.name, some.terms) for some in SETS] + [("wiki1m", WIKI_TERMS)]
    names = "\n".join(f"  {name:9} {text}" for name, text in NAMES.items())
    said = "\n".join(f"  {name:13} {text}" for name, text in terms)
    return f"""names:
{names}

terms of use, as stated by the authors:
{said}

The files come from the Hugging Face hub ({_REPO}) and go to
DIR/{ARCHIVE.target}/... and DIR/{WIKI.target}. Evaluation files must match
data/{SUMS.name}, other downloads the digest that the hub announces.
Without a connection, copy the files to the same places by hand and run the command to verify them."""


def main(argv: list[str] | None = None) -> None:
    parser = Parser(
        prog="python -m data.prepare",
        description="Download, verify and lay out training text and evaluation sets.",
        epilog=described(),
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"default: {' '.join(DEFAULT_NAMES)}"
    )
    parser.add_argument(
        "--data_dir", type=Path, default=Path("corpora"), metavar="DIR", help="folder for the data"
    )
    args = parser.parse_args(argv)
    try:
        lines = prepare(args.names or DEFAULT_NAMES, args.data_dir)
    except OSError as error:
        message = f"cannot fill {args.data_dir}: {error}; free space or choose another --data_dir"
        raise unwritable(error, message) from error
    show("\n".join(lines))


if __name__ == "__main__":
    run_command(main)
