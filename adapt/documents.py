"""Documents with titles and bodies from text files and tables, such as BEIR's corpus.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adapt.held_out import Document
from data.source import Source
from data.text import column_names, read_text


def read_documents(
    files: Sequence[Path], cache_dir: str, text_column: str | None = None, title_column: str = "title"
) -> list[Document]:
    """All documents, in the order of the files.

    Args:
        files: of any supported format, recognised by name.
        cache_dir: folder for the converted texts.
        text_column: text column of tables, default `text`; if given, text files must have a header.
        title_column: title column of tables that have one.

    Raises:
        BadInput: a file cannot be read; names file and line.
    """
    documents = []
    for path in files:
        source = Source((path,), names=(text_column,) if text_column else ())
        if title_column in column_names(source):
            source = replace(source, names=(title_column, text_column or "text"), titled=True)
        text = read_text(source, cache_dir).rows
        columns = ([" ".join(cell.split()) for cell in text[name]] for name in ("0", "1")[: source.width])
        documents += map(Document, *columns) if source.titled else (Document("", body) for body in next(columns))
    return documents
