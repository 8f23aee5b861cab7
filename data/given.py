"""Text that is given from Python as a file, so that such a run's record has a command that repeats it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from common.arguments import LABEL, NLI_COLUMNS, DataArguments
from common.errors import BadInput
from common.files import writing

_SEPARATORS = re.compile(r"[\r\n\t]+")  # of rows and columns in a file


def with_text(
    text: str | PathLike | Iterable | None, settings: Mapping[str, Any], labelled: bool = False
) -> dict[str, Any]:
    """The settings of a run with its text among them.

    Args:
        text: a path; or sentences, rows of sentences or a `datasets.Dataset`, which are written into the cache.
        settings: values by flag name.
        labelled: the rows are labelled pairs: premise, hypothesis and label name.

    Raises:
        BadInput: `text` is a table of another type, a row is not text, or it is not said which column of a Dataset is.
    """
    settings = dict(settings)
    if text is None:
        return settings
    if settings.get("train_file") is not None:
        raise BadInput("give the text or train_file, not both")
    if isinstance(text, (str, PathLike)):
        return settings | {"train_file": text}
    if isinstance(text, Mapping) or hasattr(text, "columns") or not isinstance(text, Iterable):
        what = "sentences (of a DataFrame, df['text'].tolist()), one split of a Dataset, or a path"
        raise BadInput(f"text of type {type(text).__name__}: give {what}")  # its names would be the sentences
    if hasattr(text, "column_names"):
        columns = settings.pop("text_column", None)
        columns = [columns] if isinstance(columns, str) else [*(columns or ())]
        text = _pairs(text, columns) if labelled else _rows(text, columns)
    cache = Path(settings.get("cache_dir") or DataArguments().cache_dir)
    settings["train_file"], width = write_text(text, cache, (*NLI_COLUMNS, LABEL) if labelled else ())
    if width > 1 and not labelled:
        settings.setdefault("columns", width)
    return settings


def joined(named: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a call; BadInput for one that was given both by its own argument and by its flag's name."""
    if both := sorted(name for name in settings if named.get(name) is not None):
        raise BadInput(f"{both[0]}: given twice, by its own argument and by this name; leave one out")
    return {**named, **settings}


def _rows(dataset: Any, columns: Sequence[str]) -> Iterable:
    """The texts of one column of a Dataset (default: `text` or the only one), or rows of several columns."""
    names = dataset.column_names
    columns = columns or (["text"] if "text" in names else names)
    if {*columns} - {*names} or (columns is names and len(names) > 1):
        raise BadInput(f"text_column: name the text column; choose from {', '.join(names)}")
    rows = (row for row in zip(*(dataset[name] for name in columns), strict=True) if None not in row)  # as in a file
    return rows if len(columns) > 1 else (text for (text,) in rows)


def _pairs(dataset: Any, columns: Sequence[str]) -> Iterable:
    """The labelled pairs of a Dataset; labels are classes or names, and -1 means unlabelled, as on the hub."""
    names = [*(columns or NLI_COLUMNS)]
    names += [LABEL] * (len(names) == 2)
    label_name = getattr(dataset.features[names[-1]], "int2str", str)
    labels = ("-" if label in (-1, None) else label_name(label) for label in dataset[names[-1]])
    return zip(*(dataset[name] for name in names[:-1]), labels, strict=True)


def write_text(rows: Iterable[str | Sequence[str]], cache: Path, header: Sequence[str] = ()) -> tuple[Path, int]:
    """Write rows to a text file named by its hash; returns its path and the columns of the first row.

    Line breaks and tabs within a text become spaces. The whole text is held in memory; give larger ones as a file.
    """
    lines, columns = ["\t".join(header) + "\n"] if header else [], 1
    for number, row in enumerate(rows):
        cells = [row] if isinstance(row, str) else row
        if not isinstance(cells, (list, tuple)) or not all(isinstance(cell, str) for cell in cells):
            raise BadInput(f"row {number} of the text: expected text, got {type(row).__name__}: {str(row)[:40]}")
        columns = columns if number else len(cells)
        lines.append("\t".join(_SEPARATORS.sub(" ", cell) for cell in cells) + "\n")
    return keep("".join(lines).encode(), cache / "text.txt"), columns


def keep(content: bytes, name: Path) -> Path:
    """Write a file whose name ends in the hash of its content, unless it exists."""
    path = name.with_stem(f"{name.stem}-{hashlib.sha256(content).hexdigest()[:16]}")
    if not path.is_file() or path.read_bytes() != content:
        with writing(path) as part:
            part.write_bytes(content)
    return path
