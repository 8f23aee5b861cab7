"""Documents with titles and bodies from text files and tables, such as BEIR's corpus.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adapt.held_out import Document
from common.files import find_files
from data.source import Source
from data.text import column_names, read_text


def read_documents(paths: Sequence[str], cache_dir: str) -> list[Document]:
    """All documents, in the order of the files; BadInput with file and line for what is none."""
    return [document for path in find_files(list(paths), ".", ()) for document in _rows(path, cache_dir)]


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
