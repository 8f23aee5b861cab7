"""Name, description and papers of every method: the data is `citations.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

FILE = Path(__file__).with_suffix(".yaml")


class Citation(NamedTuple):
    """A method for readers: its name, a sentence about it, its published records (ids) and its papers (BibTeX)."""

    name: str
    about: str
    published: list[str]
    bibtex: list[str]


def citations() -> dict[str, Citation]:
    """By method."""
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {method: Citation(**entry) for method, entry in content.items()}
