"""Text given from Python, as a file, so that the run's record has a command that repeats it."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from common.arguments import LABEL, NLI_COLUMNS, DataArguments
from common.errors import BadInput
from common.files import writing
from common.ranges import check_type

_SEPARATORS = re.compile(r"[\r\n\t]+")  # of rows and columns in a file


def with_text(
    text: str | PathLike | Iterable | None, settings: Mapping[str, Any], labelled: bool = False
) -> dict[str, Any]:
    """The settings of a run with its text among them.

    Args:
        text: a path; or sentences, rows of sentences or a `datasets.Dataset` (`text_column` names
            its columns), which are written into the cache.
        settings: values by flag name.
        labelled: the rows are labelled pairs: premise, hypothesis and label name.

    Raises:
        BadInput: `text` is a table of another type, or a row is not text.
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
        # Otherwise its names would be the sentences.
        raise BadInput(f"text of type {type(text).__name__}: give {what}")
    cache_dir = settings.get("cache_dir") or DataArguments().cache_dir
    check_type("--cache_dir", cache_dir, str | PathLike)
    cache = Path(cache_dir)
    if hasattr(text, "column_names") and hasattr(text, "to_parquet"):
        stream = io.BytesIO()
        text.to_parquet(stream)  # with the names of its classes
        return settings | {"train_file": keep(stream.getvalue(), cache / "text.parquet")}
    settings["train_file"], width = write_text(
        text, cache, (*NLI_COLUMNS, LABEL) if labelled else ()
    )
    if width > 1 and not labelled:
        settings.setdefault("columns", width)
    return settings


def write_text(
    rows: Iterable[str | Sequence[str]], cache: Path, header: Sequence[str] = ()
) -> tuple[Path, int]:
    """Write rows to a text file named by its hash; return its path and the first row's columns.

    Line breaks and tabs within a text become spaces. The whole text is held in memory; give larger
    ones as a file.
    """
    lines, columns = ["\t".join(header).encode() + b"\n"] if header else [], 1
    for number, row in enumerate(rows):
        cells = [row] if isinstance(row, str) else row
        if not isinstance(cells, (list, tuple)) or not all(isinstance(cell, str) for cell in cells):
            raise BadInput(
                f"row {number} of the text: expected text, got {type(row).__name__}: "
                f"{str(row)[:40]}"
            )
        columns = columns if number else len(cells)
        line = "\t".join(_SEPARATORS.sub(" ", cell) for cell in cells) + "\n"
        try:
            lines.append(line.encode())
        except UnicodeEncodeError as error:
            said = "half of a surrogate pair; bytes that are not UTF-8?"
            raise BadInput(f"row {number} of the text, {line[:40]!r}: {said}") from error
    return keep(b"".join(lines), cache / "text.txt"), columns


def keep(content: bytes, name: Path) -> Path:
    """Write a file whose name ends in the hash of its content, unless it exists."""
    path = name.with_stem(f"{name.stem}-{hashlib.sha256(content).hexdigest()[:16]}")
    if not path.is_file() or path.read_bytes() != content:
        with writing(path) as part:
            part.write_bytes(content)
    return path
