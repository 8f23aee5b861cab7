"""Refuses tables that are named as lines of text: read as lines, they would train a model on braces and field names.

If in doubt a file is read: quotation marks and commas alone do not make a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from common.errors import BadInput

_FIELDS = set(
    "text sentence sentences premise hypothesis label labels gold_label score id idx index anchor positive negative "
    "query document passage title body source target question answer".split()
)
_NUMBERED = re.compile(r"[a-z]+(?:_[a-z0-9]+|\d)+")


def refuse_tables(path: Path, number: int, lines: Sequence[str]) -> None:
    """BadInput if the first lines are mostly JSON objects, or the first, with this number, is a header.

    A single word counts as a header only in a `.tsv`.
    """
    if sum(map(_is_object, lines)) > len(lines) / 2:
        raise BadInput(f"{path}: most of its first lines are JSON objects, not sentences; name it NAME.jsonl")
    cells = [cell.strip(' "') for cell in lines[0].split(",")]
    if len(cells) > 1 and all(map(_is_name, cells)):
        raise BadInput(f"{path}: its first line is a header ({', '.join(cells)}), not a sentence; name it NAME.csv")
    cells = [cell.strip() for cell in lines[0].split("\t")]
    if (len(cells) > 1 or ".tsv" in path.suffixes) and all(map(_is_name, cells)):
        raise BadInput(
            f"{path}:{number}: a header ({', '.join(cells)}), not a row of sentences; say by --text_column which of "
            "the columns to read"
        )


def _is_name(cell: str) -> bool:
    return cell in _FIELDS or _NUMBERED.fullmatch(cell) is not None


def _is_object(line: str) -> bool:
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
