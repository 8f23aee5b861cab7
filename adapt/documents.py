"""Documents with titles and bodies from text files, tables and BEIR's corpus.jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adapt.held_out import Document
from common.errors import BadInput
from common.files import find_files
from data.source import Source
from data.text import column_names, read_text


def read_documents(paths: Sequence[str], cache_dir: str) -> list[Document]:
    """All documents, in the order of the files; BadInput with file and line for what is none."""
    found = []
    for path in find_files(list(paths), ".", ()):
        found += _jsonl(path) if path.suffix == ".jsonl" else _rows(path, cache_dir)
    return found


def _rows(path: Path, cache_dir: str) -> list[Document]:
    """Lines, or the column `text` of a table, with its titles if it has a column `title`."""
    source = Source((path,))
    if "title" in column_names(source):
        source = replace(source, names=("title", "text"), titled=True)
    text = read_text(source, cache_dir)
    if not source.titled:
        return [Document("", line) for line in text.cells()]
    rows = zip(text.rows["0"], text.rows["1"], strict=True)
    return [Document(*(" ".join(cell.split()) for cell in row)) for row in rows]


def _jsonl(path: Path) -> list[Document]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            texts = [" ".join(record.get(name, "").split()) for name in ("title", "text")]
        except (ValueError, AttributeError) as error:
            raise BadInput(f"{path}:{number}: not a JSON object with a text ({error})") from error
        if any(texts):
            found.append(Document(*texts))
    return found
