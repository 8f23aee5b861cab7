"""What can be downloaded: the files on the hub, the sets in them, their terms and their digests."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from common.errors import BadInput
from common.files import sha256
from data.hub import Source

_REPO = "princeton-nlp/datasets-for-simcse"
ARCHIVE = Source(_REPO, "senteval.tar", "senteval/downstream")
WIKI = Source(_REPO, "wiki1m_for_simcse.txt", "text/wiki1m_for_simcse.txt", min_lines=1_000_000)
WIKI_TERMS = "Wikipedia text, CC BY-SA 3.0 and GFDL; none stated for the selection"
SUMS = Path(__file__).with_name("SHA256SUMS")
_PREFIXES = ("senteval", "SentEval", "downstream")
_NOTE = re.compile(r"readme|licen[sc]e", re.IGNORECASE)

# The names that the command takes.
NAMES = {
    "sts": "STS12-16, STSBenchmark, SICK: evaluation; 6 MB, from an archive of about 40 MB",
    "transfer": "MR, CR, SUBJ, MPQA, SST, TREC, MRPC: evaluation; 9 MB, from the same archive",
    "sts_texts": "the sentences of the STS sets without their scores: ConSERT's training text; made of `sts`",
    "wiki1m": "1,000,000 sentences of English Wikipedia: training; about 110 MB",
}


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
    """Expected digests, from a file in the format of `sha256sum`: path below the data folder -> sha256."""
    lines = path.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def missing_files(one: EvalSet, root: Path, pinned: Mapping[str, str], advice: str) -> list[str]:
    """The files of a set that are not below `root`; BadInput for one with other content."""
    missing = []
    for path, expected in one.files(pinned).items():
        if not (root / path).is_file():
            missing.append(path)
        elif (found := sha256(root / path)) != expected:
            raise BadInput(f"{path}: sha256 is {found}, expected {expected} (data/{SUMS.name}); {advice}")
    return missing


def place_of(member: str, wanted: Collection[str]) -> str | None:
    """Where an archive member belongs, whichever prefix it has; None if no wanted set has it.

    The notes with the terms of use come along; they are not read, so they are not pinned.
    """
    parts = member.split("/")
    while len(parts) > 1 and parts[0] in _PREFIXES:
        parts = parts[1:]
    path = "/".join([ARCHIVE.target, *parts])
    folder = path.rpartition("/")[0] + "/"
    is_note = _NOTE.search(parts[-1]) and any(other.startswith(folder) for other in wanted)
    return path if path in wanted or is_note else None


def described(lock: str) -> str:
    """Names, terms and places, for `--help`."""
    terms = [(one.name, one.terms) for one in SETS] + [("wiki1m", WIKI_TERMS)]
    return "\n".join([
        "names:",
        *(f"  {name:9} {text}" for name, text in NAMES.items()),
        "\nterms of use, as far as their authors state any:",
        *(f"  {name:13} {text}" for name, text in terms),
        f"""
The files come from the dataset repository {_REPO} on the Hugging Face hub and go to
DIR/{ARCHIVE.target}/... and DIR/{WIKI.target}. HF_ENDPOINT (a mirror), HF_TOKEN and
HF_HUB_OFFLINE work as usual. A part is put in place only when it is complete and verified, and is not downloaded
again; after an interruption run the same command again. Evaluation files must match data/{SUMS.name}; the digests
of the downloads are recorded in DIR/{lock} the first time and must stay the same. Without a connection
put the files into the same places by hand and run the command, which verifies them.""",
    ])  # fmt: skip
