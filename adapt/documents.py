"""Documents with titles and bodies from text files and BEIR's corpus.jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from adapt.held_out import Document
from common.errors import BadInput
from common.files import find_files
from data.text import Reader


def read_documents(paths: Sequence[str]) -> list[Document]:
    """All documents, in the order of the files; BadInput with file and line for what is none."""
    found = []
    for path in find_files(list(paths), ".", ()):
        found += _jsonl(path) if path.suffix == ".jsonl" else [Document("", row[0]) for row in Reader([path])]
    return found


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
