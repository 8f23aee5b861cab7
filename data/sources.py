"""What can be downloaded: the files on the hub, the sets in them, their terms and their digests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.errors import BadInput
from data.hub import Source, measure

_REPO = "princeton-nlp/datasets-for-simcse"
ARCHIVE = Source(_REPO, "senteval.tar", "senteval/downstream")
WIKI = Source(_REPO, "wiki1m_for_simcse.txt", "text/wiki1m_for_simcse.txt", min_lines=1_000_000)
SUMS = Path(__file__).with_name("SHA256SUMS")
_PREFIXES = ("senteval", "SentEval", "downstream")
_NOTE = re.compile(r"readme|licen[sc]e", re.IGNORECASE)

# Every name of the command, with what it is.
NAMES = {
    "sts": "STS12-16, STSBenchmark, SICK: evaluation; 6 MB, from an archive of about 40 MB",
    "transfer": "MR, CR, SUBJ, MPQA, SST, TREC, MRPC: evaluation; 9 MB, from the same archive",
    "sts_texts": "the sentences of the STS sets without their scores: ConSERT's training text; made of `sts`",
    "wiki1m": "1,000,000 sentences of English Wikipedia: training; about 110 MB",
}
WIKI_TERMS = "Wikipedia text, CC BY-SA 3.0 and GFDL; none stated for the selection"
_HELP = """
names:
{names}

terms of use, as far as their authors state any:
{terms}

The files come from the dataset repository {repo} on the Hugging Face hub
and go to DIR/{archive}/... and DIR/{wiki}. HF_ENDPOINT (a mirror), HF_TOKEN
and HF_HUB_OFFLINE work as usual. A part is put in place only when it is whole and verified; a finished
part is not downloaded again, so after an interruption run the same command again. Evaluation files are
held against data/{sums}; the digests of the downloads themselves are recorded in DIR/{lock}
the first time and must stay the same. Without a connection lay the files by hand into the same places and
run the command: it verifies them.
"""


@dataclass(frozen=True)
class EvalSet:
    """One evaluation set of the archive; `terms` are those its authors state."""

    name: str
    part: str
    folder: str
    terms: str

    def files(self, pinned: Mapping[str, str]) -> dict[str, str]:
        """The entries of `pinned` that belong to this set."""
        folder = f"{ARCHIVE.target}/{self.folder}/"
        return {path: digest for path, digest in pinned.items() if path.startswith(folder)}


SETS = (
    EvalSet("STS12", "sts", "STS/STS12-en-test", "MSRpar, MSRvid: Microsoft Research terms; others: none stated"),
    EvalSet("STS13", "sts", "STS/STS13-en-test", "none stated; see its 00-readme.txt"),
    EvalSet("STS14", "sts", "STS/STS14-en-test", "none stated; see its 00-readme.txt"),
    EvalSet("STS15", "sts", "STS/STS15-en-test", "answers-forums: CC BY-SA 3.0; others: none stated"),
    EvalSet("STS16", "sts", "STS/STS16-en-test", "CC BY-SA 3.0 and others; see its LICENSE.txt"),
    EvalSet("STSBenchmark", "sts", "STS/STSBenchmark", "scores CC BY-SA 4.0; texts: see its LICENSE.txt"),
    EvalSet("SICK", "sts", "SICK", "CC BY-NC-SA 3.0: not commercial"),
    EvalSet("MR", "transfer", "MR", "CC BY 4.0"),
    EvalSet("CR", "transfer", "CR", "none stated (Hu and Liu 2004)"),
    EvalSet("SUBJ", "transfer", "SUBJ", "CC BY 4.0"),
    EvalSet("MPQA", "transfer", "MPQA", "none stated (Wiebe et al. 2005)"),
    EvalSet("SST", "transfer", "SST/binary", "none stated (Socher et al. 2013)"),
    EvalSet("TREC", "transfer", "TREC", "none stated (Li and Roth 2002)"),
    EvalSet("MRPC", "transfer", "MRPC", "Microsoft Research terms: research use"),
)


def read_pinned(path: Path = SUMS) -> dict[str, str]:
    """Expected digests, from a file in the format of `sha256sum`: path below the data folder to sha256."""
    lines = path.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def missing_files(one: EvalSet, root: Path, pinned: Mapping[str, str], advice: str) -> list[str]:
    """The files of a set that are not below `root`; one that is there with other content is an error."""
    files = one.files(pinned)
    present = [path for path in files if (root / path).is_file()]
    for path in present:
        if (found := measure(root / path).sha256) != files[path]:
            raise BadInput(f"{path}: sha256 is {found}, expected {files[path]} (data/{SUMS.name}); {advice}")
    return [path for path in files if path not in present]


def place_of(member: str, wanted: set[str]) -> str | None:
    """Where an archive member belongs, whichever prefix it has; None for what no wanted set reads."""
    parts = member.split("/")
    while len(parts) > 1 and parts[0] in _PREFIXES:
        parts = parts[1:]
    path = "/".join([ARCHIVE.target, *parts])
    folder = path.rpartition("/")[0] + "/"
    # The notes with the terms come along; they are not read, so they are not pinned.
    is_note = _NOTE.search(parts[-1]) and any(other.startswith(folder) for other in wanted)
    return path if path in wanted or is_note else None


def describe(lock: str) -> str:
    """What `--help` says about names, terms and places."""
    terms = [(one.name, one.terms) for one in SETS] + [("wiki1m", WIKI_TERMS)]
    return _HELP.format(
        names="\n".join(f"  {name:9} {text}" for name, text in NAMES.items()),
        terms="\n".join(f"  {name:13} {text}" for name, text in terms),
        repo=ARCHIVE.repo,
        archive=ARCHIVE.target,
        wiki=WIKI.target,
        sums=SUMS.name,
        lock=lock,
    )
