"""Download, verify and lay out the corpora: `python -m data.prepare [NAME ...] [--data_dir DIR]`.

`huggingface_hub` does the transfer, through its own cache, so `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME`,
`HF_HUB_OFFLINE` and proxies work as usual, and an interrupted transfer resumes. Evaluation files
are checked against the digests of this repository, the others against those that the hub announces.
"""

import hashlib
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from huggingface_hub import hf_hub_download

# HTTPError is the base class of the HTTP client's errors: refused, timed out, cut off.
from huggingface_hub.errors import HTTPError, XetDownloadError

from common.errors import BadInput, brief, run_command
from common.files import sha256, writing
from common.flags import Parser
from common.streams import show
from data.lines import numbered_lines

SUMS = Path(__file__).with_name("SHA256SUMS")
REPO = "princeton-nlp/datasets-for-simcse"
ARCHIVE, WIKI = "senteval.tar", "wiki1m_for_simcse.txt"  # its files
DOWNSTREAM, STS_TEXTS = "senteval/downstream", "text/sts_unlabelled.txt"
WIKI_LINES = 1_000_000
MAX_BYTES = 2**28  # of the archive's files: some hundred, 40 MB
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"^(\./|senteval/|SentEval/|downstream/)*")  # of the archive's members
_NOTE = re.compile(r"readme|licen[sc]e", re.IGNORECASE)  # terms of use, beside the files of a set

DEFAULT_NAMES = ("sts", "wiki1m")
SETS = {  # name -> folders of the archive
    "sts": ("STS", "SICK"),
    "transfer": ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC"),
}
NAMES = (*SETS, "sts_texts", "wiki1m")
HELP = f"""names:
  sts        STS12-16, STSBenchmark, SICK: evaluation; 6 MB, from an archive of about 40 MB
  transfer   MR, CR, SUBJ, MPQA, SST, TREC, MRPC: evaluation; 9 MB, from the same archive
  sts_texts  the texts of `sts` without their scores, for training: ConSERT's
  wiki1m     1,000,000 sentences of English Wikipedia: training; about 110 MB

The files come from the Hugging Face hub ({REPO}) and go to
DIR/senteval/downstream and DIR/text; docs/evaluation.md has their terms of use. Evaluation files
must match data/{SUMS.name}. Without a connection, copy the files there by hand and run the command
to verify them."""


def pinned() -> dict[str, str]:
    """Path below the data folder -> sha256, from a file in the format of `sha256sum`."""
    lines = SUMS.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def prepare(names: Sequence[str], data_dir: Path) -> list[str]:
    """Download the parts with these `NAMES` into `data_dir`; return a line about each.

    BadInput if a part cannot be downloaded or differs from what is expected; nothing of it is put
    in place.
    """
    if unknown := sorted(set(names).difference(NAMES)):
        raise BadInput(f"unknown name {unknown[0]!r}; choose from {', '.join(NAMES)}")
    lines = []
    for name, folders in SETS.items():
        if name in names:
            files = {path: sha for path, sha in pinned().items() if path.split("/")[2] in folders}
            _prepare_files(files, data_dir)
            lines.append(f"{name}: {len(files)} files in {data_dir / DOWNSTREAM}")
    if "wiki1m" in names:
        _prepare_wiki(data_dir / "text" / WIKI)
        lines.append(f"wiki1m: {WIKI_LINES:,} lines in {data_dir / 'text' / WIKI}")
    if "sts_texts" in names:
        write_sts_texts(data_dir)
        lines.append(f"sts_texts: {data_dir / STS_TEXTS}")
    return lines


def _prepare_files(expected: Mapping[str, str], data_dir: Path) -> None:
    """Unpack files unless all are there; the sha256 of all is checked before one is written."""
    present = [path for path in expected if (data_dir / path).is_file()]
    for path in present:
        if sha256(data_dir / path) != expected[path]:
            said = f"not the published file (data/{SUMS.name}); remove it and run again"
            raise BadInput(f"{data_dir / path}: {said}")
    if len(present) == len(expected):
        return
    archive = _downloaded(ARCHIVE, f"unpack it by hand so that {data_dir / min(expected)} exists")
    contents = unpack(archive, expected)
    for path, digest in expected.items():
        if path not in contents or hashlib.sha256(contents[path]).hexdigest() != digest:
            said = f"{path} is missing or not the published file (data/{SUMS.name})"
            raise BadInput(f"{archive}: {said}; remove it and run again, or copy the files by hand")
    for path, content in contents.items():
        with writing(data_dir / path) as part:
            part.write_bytes(content)


def unpack(archive: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The wanted files of a tar archive and the notes beside them: path -> content.

    An archive is untrusted: only regular files whose whole path is known are read. BadInput if it
    is damaged or too large.
    """
    left = MAX_BYTES
    folders = {path.rpartition("/")[0] for path in wanted}
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = f"{DOWNSTREAM}/{_PREFIX.sub('', member.name)}"
                folder, _, name = path.rpartition("/")
                is_note = folder in folders and _NOTE.search(name)
                file = tar.extractfile(member) if member.isreg() else None
                if file is not None and (path in wanted or is_note):
                    left -= member.size
                    if left < 0:
                        raise tarfile.TarError(f"over {MAX_BYTES} bytes")
                    contents[path] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        said = f"incomplete or not the expected archive ({error})"
        raise BadInput(f"{archive}: {said}; remove it and run again") from error
    return contents


def _prepare_wiki(target: Path) -> None:
    """Download the sentences unless they are in place, and check their number."""
    there = target.is_file()
    path = target if there else _downloaded(WIKI, f"copy it by hand to {target}")
    with path.open("rb") as stream:
        lines = sum(1 for _ in stream)
    if lines < WIKI_LINES:
        said = f"{lines} lines, but the published file has {WIKI_LINES}"
        raise BadInput(f"{path}: {said}; remove it and run again")
    if not there:
        with writing(target) as part:
            shutil.copyfile(path, part)


def _downloaded(file: str, by_hand: str) -> Path:
    """A file of the hub, in the library's cache.

    BadInput if it cannot be downloaded, with the advice `by_hand` for users without a connection,
    or is not what the hub announced.
    """
    try:
        path = Path(hf_hub_download(REPO, file, repo_type="dataset")).resolve()
    except (HTTPError, OSError, ValueError, XetDownloadError) as error:
        advice = "run again to resume, set HF_ENDPOINT to a mirror or HF_TOKEN to a token"
        said = f"cannot download {file} of dataset repository {REPO}: {brief(error).rstrip('.')}"
        raise BadInput(f"{said}; {advice}, or {by_hand}") from error
    # The cache names a large file by its announced sha256, of which the library checks the size.
    if _SHA256.fullmatch(path.name) and sha256(path) != path.name:
        raise BadInput(f"{path}: not the {file} that the hub announced; remove it and run again")
    return path


def write_sts_texts(data_dir: Path) -> None:
    """Write both sentences of every pair of the seven STS sets, one per line: ConSERT's text.

    ConSERT (arXiv 2105.11741) section 4.1 mixes "the unlabeled texts from these datasets"; Table 1
    counts 89,192. These are all pairs in SentEval's files, with the unscored ones of STS15 and
    STS16 and the test splits, so a model trained on them has seen its test texts.
    """
    root = data_dir / DOWNSTREAM
    columns: dict[Path, int] = {}  # of the first text in each file
    for year in range(12, 17):
        files = sorted((root / f"STS/STS{year}-en-test").glob("STS.input.*.txt"))
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
    show("\n".join(prepare(args.names or DEFAULT_NAMES, Path(args.data_dir))))


if __name__ == "__main__":
    run_command(main)
