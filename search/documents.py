"""Documents from files and folders, their windows, and snippets of them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from common.errors import BadInput
from common.files import files_of, open_regular
from data.lines import numbered_lines
from eval.retrieval.lexical import Words, normal, word_places
from search.index import Document

logger = logging.getLogger(__name__)
WHOLE = (".md", ".markdown", ".txt", ".html", ".htm")  # files of a folder, each a document
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
_SNIPPET, _BEFORE = 240, 40  # characters, and of them before the first marked word


def read_documents(paths: Iterable[Path]) -> list[Document]:
    """The documents of files and folders.

    - a folder: every `.md`, `.txt` or `.html` below it is a document with its path as the id
    - `.jsonl`: every line is a document with `text` and, if it has them, `title` and `_id` (BEIR's
      format)
    - `.txt`: every line is a document
    - another file: one document

    Raises:
        BadInput: a file cannot be read, an id occurs twice, or there is no document with a word.
    """
    documents = [document for path in paths for document in _documents(path)]
    kept = [document for document in documents if word_places(document.text)]
    if dropped := len(documents) - len(kept):
        logger.warning("skipped %d empty documents of %d", dropped, len(documents))
    if not kept:
        names = ", ".join(map(str, paths))
        raise BadInput(
            f"{names}: no document; give a .jsonl or .txt file, or a folder of {' '.join(WHOLE)}"
        )
    return kept


def _documents(path: Path) -> Iterator[Document]:
    if path.is_dir():
        files = files_of(path)
        named = [file for file in files if file.suffix.lower() in WHOLE]
        if others := len(files) - len(named):
            logger.info("%s: skipped %d files that are not %s", path, others, " ".join(WHOLE))
        yield from (_whole(file, str(file.relative_to(path))) for file in named)
    elif path.suffix == ".jsonl":
        yield from (
            _record(f"{path}:{number}", number, line) for number, line in numbered_lines(path)
        )
    elif path.suffix == ".txt":
        yield from (
            Document(str(number), "", line.strip()) for number, line in numbered_lines(path)
        )
    else:
        yield _whole(path, path.name)


def _record(where: str, number: int, line: str) -> Document:
    try:
        record = json.loads(line)
        name, title, text = record.get("_id", str(number)), record.get("title", ""), record["text"]
        return Document(name + "", title + "", f"{title} {text + ''}".strip())
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise BadInput(
            f"{where}: needs an object with 'text', and '_id' and 'title' if any, as strings"
        ) from error


def _whole(path: Path, name: str) -> Document:
    with open_regular(path) as file:
        try:
            text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadInput(f"{path}: not UTF-8 (byte {error.start}); convert the file") from error
    suffix, title = path.suffix.lower(), path.stem
    if suffix in (".html", ".htm"):
        page = _Page()
        page.feed(text)
        page.close()
        text, title = "".join(page.text), " ".join("".join(page.title).split()) or title
    elif suffix in (".md", ".markdown") and (heading := _HEADING.search(text)):
        title = heading[1]
    return Document(name, title, text.strip())


class _Page(HTMLParser):
    """The visible text and the title of a page."""

    _HIDDEN = ("script", "style", "template", "noscript")
    _INLINE = (
        "a",
        "abbr",
        "b",
        "code",
        "em",
        "i",
        "mark",
        "small",
        "span",
        "strong",
        "sub",
        "sup",
        "u",
        "wbr",
    )

    def __init__(self) -> None:
        super().__init__()
        self.title: list[str] = []
        self.text: list[str] = []
        self._inside = ""  # the hidden element or title that is open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in (*self._HIDDEN, "title"):
            self._inside = self._inside or tag
        elif tag not in self._INLINE:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""
        if tag not in self._INLINE:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._inside == "title":
            self.title.append(data)
        if self._inside not in self._HIDDEN:
            self.text.append(data)


def cutter(tokenizer: Any, window: int, stride: int) -> Callable[[str], list[tuple[int, int]]]:
    """A function that cuts a text into windows of `window` tokens, one every `stride` tokens.

    It returns first and end character of every window; the last one ends with the text. A tokenizer
    without places of tokens counts words.
    """

    def cut(text: str) -> list[tuple[int, int]]:
        if getattr(tokenizer, "is_fast", False):
            encoded = tokenizer(
                text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
            )
            starts = [start for start, end in encoded["offset_mapping"] if end > start]
        else:
            starts = word_places(text)
        bounds = [*starts, len(text)]
        last = max(0, len(starts) - window)  # the first token from which a window reaches the end
        firsts = [*range(0, last, stride), last] if last else [0]
        windows = [(bounds[first], bounds[min(first + window, len(starts))]) for first in firsts]
        return [(0, windows[0][1]), *windows[1:]] if starts else [(0, len(text))]

    return cut


def snippet(text: str, query: str, words: Words) -> str:
    """The part of a text with the most different words of the query, on one line.

    They are marked `**so**`. The text is shown in NFKC, as its words are compared.
    """
    text, wanted = normal(text), set(words(query))
    marked = [word for word in words.spans(text) if word[2] in wanted]
    last = _SNIPPET - _BEFORE
    counts = [
        len({term for start, _, term in marked[i:] if start < word[0] + last})
        for i, word in enumerate(marked)
    ]
    first = marked[counts.index(max(counts))][0] if marked else 0
    begin = max(0, first - _BEFORE)
    begin = text.find(" ", begin, first) + 1 or begin if begin else 0
    end = begin + _SNIPPET if begin + _SNIPPET < len(text) else len(text)
    end = (
        max(text.rfind(" ", first, end), first)
        if end < len(text) and " " in text[first:end]
        else end
    )
    parts, done = [], begin
    for start, stop, _ in marked:
        if begin <= start and stop <= end:
            parts += [text[done:start], f"**{text[start:stop]}**"]
            done = stop
    inside = " ".join("".join([*parts, text[done:end]]).split())
    return f"{'... ' * (begin > 0)}{inside}{' ...' * (end < len(text))}"
