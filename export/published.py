"""A method's papers (`citations.yaml`), and its published scores next to those of the exported model."""

from pathlib import Path
from typing import NamedTuple

from common.files import read_yaml
from eval.compare.intervals import COLUMNS, compare
from eval.compare.sides import Side, backbone_of, from_files, records
from eval.scores import markdown
from export.facts import Facts
from export.text import escape

FILE = Path(__file__).with_name("citations.yaml")


class Citation(NamedTuple):
    """A method's name, a sentence about it, the ids of its published records, and its papers (BibTeX)."""

    name: str
    about: str
    published: list[str]
    bibtex: list[str]


def citations() -> dict[str, Citation]:
    """The citation of every method."""
    return {method: Citation(**entry) for method, entry in read_yaml(FILE).items()}


def comparison(facts: Facts, citation: Citation | None, config) -> str:
    """The section of the card, or the reason why no comparison is possible."""
    title = "### Comparison with published scores\n\n"
    if facts.scores is None or citation is None:
        return ""
    if facts.text.get("columns") != 1:
        return title + "The published scores are for training on single sentences, unlike this model's."
    ours, backbone, known = from_files("this model", [facts.scores]), backbone_of(config), records()
    matching = [known[name] for name in citation.published if known[name].backbone == backbone]
    matching = [one for one in matching if set(one.scores) & set(ours.scores)]
    if not matching:
        return title + (f"No published scores of {citation.name} are known for a backbone of this size on these tasks.")
    about = f"The published scores are for {backbone}, which has this model's architecture and size. "
    about += "A is this model, B the published one; the interval is the known spread between runs of the method."
    return title + "\n\n".join([about, *(_table(ours, record, known) for record in matching)])


def _table(ours: Side, record: Side, known: dict[str, Side]) -> str:
    lines = [line for line in compare(ours, record, record=known.__getitem__) if line.difference is not None]
    body = [COLUMNS, *([escape(cells[0]), *cells[1:]] for cells in (line.cells() for line in lines))]
    sources = dict.fromkeys(line.b.source for line in lines)
    about = "; ".join(filter(None, [*sources, record.note, f"`python -m eval.compare` calls it {record.label}"]))
    return f"{markdown(body)}\n\nB: {about}."
