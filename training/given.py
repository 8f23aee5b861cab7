"""What `train` is given from Python, as the command line has it: settings as flags, sentences as a file.

So a run from Python is the command's run: its record holds a command that does the same, and resumes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any

from common.arguments import DataArguments
from common.errors import BadInput
from common.files import writing

LABELLED = ("premise", "hypothesis", "label")  # the header of labelled pairs
_SEPARATORS = re.compile(r"[\r\n\t]+")  # of rows and columns in a file


def as_flags(text: str | PathLike | Iterable | None, settings: Mapping[str, Any], labelled: bool = False) -> list[str]:
    """The command line of a run.

    Args:
        text: a path; or sentences, rows of sentences or a `datasets.Dataset`, which are written into the cache.
        settings: values of flags by name; None leaves a flag out.
        labelled: the rows are labelled pairs: premise, hypothesis and the label's name.

    Raises:
        BadInput: a row is no text, or the Dataset's column is not known.
    """
    settings = dict(settings)
    if isinstance(text, (str, PathLike)):
        settings["train_file"] = text
    elif text is not None:
        if hasattr(text, "column_names"):
            wanted = settings.pop("text_column", None)
            text = _pairs(text, wanted) if labelled else _rows(text, wanted)
        cache = Path(settings.get("cache_dir") or DataArguments().cache_dir)
        settings["train_file"], columns = written(text, cache, LABELLED if labelled else ())
        if columns > 1 and not labelled:
            settings.setdefault("columns", columns)
    return [word for name, value in settings.items() if value is not None for word in _words(name, value)]


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [f"--{name}", *map(_word, value)]
    return [f"--{name}={_word(value)}"]


def _word(value: Any) -> str:
    value = value.value if isinstance(value, Enum) else value
    return json.dumps(value) if isinstance(value, (bool, dict)) else str(value)


def _rows(dataset: Any, wanted: str | Sequence[str] | None) -> Iterable:
    """The texts of one column of a Dataset, `text` or its only one where none is named, or rows of several."""
    names = dataset.column_names
    columns = [wanted] if isinstance(wanted, str) else [*(wanted or ())]
    columns = columns or (["text"] if "text" in names else names if len(names) == 1 else [])
    if not columns or {*columns} - {*names}:
        raise BadInput(f"text_column: name the column with the text, of {', '.join(names)}")
    return dataset[columns[0]] if len(columns) == 1 else zip(*(dataset[name] for name in columns), strict=True)


def _pairs(dataset: Any, wanted: Sequence[str] | None) -> Iterable:
    """The labelled pairs of a Dataset; its labels are classes or names, and -1 is none, as on the hub."""
    names = [*(wanted or LABELLED[:2]), LABELLED[2]]
    if absent := {*names} - {*dataset.column_names}:
        raise BadInput(f"labelled pairs: no column {min(absent)} among {', '.join(dataset.column_names)}")
    said = getattr(dataset.features[LABELLED[2]], "int2str", str)
    labels = ("-" if label in (-1, None) else said(label) for label in dataset[LABELLED[2]])
    return zip(*(dataset[name] for name in names[:-1]), labels, strict=True)


def written(rows: Iterable[str | Sequence[str]], cache: Path, header: Sequence[str] = ()) -> tuple[Path, int]:
    """Write rows as a text file, named by its content, and count the columns of the first.

    Line ends and tabs within a text become spaces. The whole text is held in memory; a larger one belongs in a file.
    """
    lines, columns = ["\t".join(header) + "\n"] if header else [], 1
    for number, row in enumerate(rows):
        cells = [row] if isinstance(row, str) else row
        if not isinstance(cells, (list, tuple)) or not all(isinstance(cell, str) for cell in cells):
            raise BadInput(f"row {number} of the text: a {type(row).__name__} is no text: {str(row)[:40]}")
        columns = columns if number else len(cells)
        lines.append("\t".join(_SEPARATORS.sub(" ", cell) for cell in cells) + "\n")
    content = "".join(lines).encode()
    path = cache / f"text-{hashlib.sha256(content).hexdigest()[:16]}.txt"
    if not path.is_file() or path.read_bytes() != content:
        with writing(path) as part:
            part.write_bytes(content)
    return path, columns
