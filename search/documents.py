"""Documents from files and folders, their windows, and snippets of them."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import unescape
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from common.errors import BadInput, brief
from common.files import files_of, open_regular
from data.lines import is_table, numbered_lines, reader_of
from data.source import Source
from data.text import rows_of
from eval.retrieval.lexical import Words, normal, word_places
from search.index import Document

logger = logging.getLogger(__name__)
WHOLE = (".md", ".markdown", ".txt", ".html", ".htm")  # files of a folder, each a document
CONVERTED = (".docx", ".ipynb", ".json", ".pdf", ".pptx", ".rtf")  # to Markdown, by markitdown
_TEXTS, _IDS = ("text", "body", "content", "contents"), ("_id", "id")  # names in JSON Lines
_LARGEST = 100_000_000  # bytes of a document
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(
    r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL
)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)$", re.MULTILINE)
# With the vocabulary of BERT it is 0.1 to 0.35 in languages in Latin letters, 0.47 to 1 in others.
FOREIGN = 0.4  # share of `unread` pieces
_SAMPLED, _SAMPLE = 200, 2000  # texts, characters of each
_LEAST = 100  # pieces
_CHARACTER = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_SNIPPET, _BEFORE = 240, 40  # characters, and of them before the first marked word


def read_documents(
    paths: Iterable[Path],
    text_column: str | None = None,
    title_column: str | None = None,
    written: Sequence[Path] = (),
) -> list[Document]:
    """The documents of files and folders.

    - a folder: every `.md`, `.txt` or `.html` below it is a document with its path as the id
    - `.csv`, `.tsv`, `.parquet` and `.arrow`: every row is a document
    - `.jsonl`: every line is a document with a text (`text`, `body`, `content` or `contents`) and,
      if it has them, `title` and `_id` or `id`
    - `.txt`: every line is a document
    - `.pdf` and others of `CONVERTED`, also in a folder: what markitdown makes of it
    - another file: one document

    Args:
        paths: the files and folders.
        text_column: of tables and JSON Lines; default: `text`, and the names above.
        title_column: of tables, none by default, and of JSON Lines, `title` by default.
        written: folders that the command writes, see `common.files.files_of`.

    Raises:
        BadInput: a file cannot be read, an id occurs twice, or there is no document with a word.
    """
    places: dict[str, str] = {}
    kept: list[Document] = []
    empty = 0
    for path in paths:
        for where, document in _documents(path, text_column, title_column, written):
            _check(where, document)
            if not word_places(document.text):
                empty += 1
                continue
            if document.id in places:
                raise BadInput(
                    f"{where}: the id '{document.id}' is also that of {places[document.id]}; give "
                    "the folder above both, or other ids"
                )
            places[document.id] = where
            kept.append(document)
    if empty:
        logger.warning("skipped %d empty documents of %d", empty, empty + len(kept))
    if not kept:
        names = ", ".join(map(str, paths))
        raise BadInput(
            f"{names}: no document; give a table, a .jsonl or .txt file, or a folder of "
            f"{' '.join(WHOLE)}"
        )
    if title_column and not any(document.title for document in kept):
        raise BadInput(f"no document has a title in '{title_column}' (--title_column)")
    return kept


def _check(where: str, document: Document) -> None:
    content = "".join(document)
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{where}: half of a surrogate pair in its name or text") from error
    if "\0" in content:
        raise BadInput(f"{where}: NUL character, which is no text; is the file UTF-16?")


def _documents(
    path: Path, text_column: str | None, title_column: str | None, written: Sequence[Path]
) -> Iterator[tuple[str, Document]]:
    """Yield where a document is and the document."""
    suffix, kind = path.suffix.lower(), reader_of(path)
    if path.is_dir():
        for file in _files(path, written):
            yield str(file), _whole(file, file.relative_to(path).as_posix())
    elif suffix in CONVERTED:
        yield str(path), _whole(path, path.name)
    elif kind == "json":
        for number, line in numbered_lines(path, _LARGEST):
            if line.strip():
                where, name = f"{path}:{number}", f"{path.name}:{number}"
                yield where, _record(where, name, line, text_column, title_column or "title")
    elif is_table(path):
        names = (title_column, text_column or "text")
        titled = title_column is not None
        source = Source((path,), names=tuple(filter(None, names)), titled=titled)
        for where, row in rows_of(source):
            cells = ["", ""] if isinstance(row, str) else row  # an empty one is counted
            title = cells[0] if titled else ""
            yield f"{path}{where}", Document(f"{path.name}{where}", title, " ".join(cells).strip())
    elif suffix == ".txt":
        for number, line in numbered_lines(path):
            yield f"{path}:{number}", Document(f"{path.name}:{number}", "", line.strip())
    else:
        yield str(path), _whole(path, path.name)


def _files(folder: Path, written: Sequence[Path]) -> list[Path]:
    """The files of a folder that are a document each."""
    read, files = [*WHOLE], files_of(folder, written)
    convertible = [file for file in files if file.suffix.lower() in CONVERTED]
    if find_spec("markitdown"):
        read += CONVERTED
    elif convertible:
        example, count = convertible[0].name, len(convertible)
        logger.warning("%s: %d files such as %s need markitdown", folder, count, example)
    named = [file for file in files if file.suffix.lower() in read]
    if others := len(files) - len(named):
        logger.info("%s: skipped %d files that are not %s", folder, others, " ".join(read))
    return named


def _record(
    where: str, name: str, line: str, text_column: str | None, title_column: str
) -> Document:
    keys = [text_column] if text_column else _TEXTS
    try:
        record = json.loads(line)
        texts = [record[key] for key in keys if record.get(key) is not None]
        names = [str(record[key]) for key in _IDS if record.get(key) is not None]
        title, text = record.get(title_column) or "", texts[0]
        return Document(names[0] if names else name, title + "", f"{title} {text + ''}".strip())
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError) as error:
        wanted = text_column or ", ".join(_TEXTS)
        raise BadInput(
            f"{where}: needs an object with a string '{wanted}' (see --text_column) and, if any, a "
            f"string '{title_column}' and an '_id'"
        ) from error


def _whole(path: Path, name: str) -> Document:
    suffix, title = path.suffix.lower(), ""
    text = _converted(path) if suffix in CONVERTED else _text(path)
    if suffix in (".html", ".htm"):
        title, text = _html(text)
    elif suffix in (".md", ".markdown", *CONVERTED):
        title, text = _markdown(text)
    return Document(name, title or path.stem, text.strip())


def _text(path: Path) -> str:
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > _LARGEST:
            raise BadInput(
                f"{path}: a document of more than {_LARGEST:,} bytes; split it, or give lines "
                "as .jsonl"
            )
        content = file.read()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 (byte {error.start}); convert the file") from error


def _converted(path: Path) -> str:
    """A file as Markdown."""
    try:
        from markitdown import MarkItDown  # here: few have it
    except ImportError as error:
        raise BadInput(
            f"{path}: {path.suffix} files need markitdown (pip install 'markitdown[all]'); or "
            "convert it to text"
        ) from error
    try:
        return MarkItDown().convert(path).text_content
    except Exception as error:  # of the many formats' libraries
        raise BadInput(f"{path}: markitdown cannot convert it ({brief(error)})") from error


def _markdown(text: str) -> tuple[str, str]:
    """Title and text, without front matter; a title that only that has is put before."""
    heading = ""
    if front := _FRONT_MATTER.match(text):
        try:
            fields = yaml.load(front[1], yaml.BaseLoader)  # all values are strings
        except (yaml.YAMLError, RecursionError):
            fields = None
        if isinstance(fields, dict):  # otherwise it is text between two rules
            text, title = text[front.end() :].strip(), fields.get("title")
            heading = title if isinstance(title, str) else ""
            if not text.lstrip("# ").startswith(heading):
                text = f"{heading}\n\n{text}"
    if not heading and (found := _HEADING.search(_FENCED.sub("", text))):
        heading = found[1].strip().rstrip("#").strip()
    return heading, text


def _html(text: str) -> tuple[str, str]:
    """Title and visible text of a page.

    Of the parser's older versions a tag that does not end before the file does takes time for every
    character after it, and a marked section (`<![`), which HTML does not have, fails.
    """
    page, end = _Page(), text.rfind(">") + 1
    page.feed(text[:end].replace("<![", "<!"))
    page.close()
    page.handle_data(unescape(text[end:]))
    return " ".join("".join(page.title).split()), "".join(page.text)


class _Page(HTMLParser):
    _HIDDEN = ("script", "style", "template", "noscript", "svg")
    _INLINE = "a abbr b code em i mark small span strong sub sup u wbr".split()

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

    It returns first and end character of every window; the last one ends with the text.
    """

    def cut(text: str) -> list[tuple[int, int]]:
        starts = [start for _, (start, end) in _pieces(tokenizer, text) if end > start]
        bounds = [*starts, len(text)]
        last = max(0, len(starts) - window)  # the first token from which a window reaches the end
        firsts = [*range(0, last, stride), last] if last else [0]
        windows = [(bounds[first], bounds[min(first + window, len(starts))]) for first in firsts]
        return [(0, windows[0][1]), *windows[1:]] if starts else [(0, len(text))]

    return cut


def unread(tokenizer: Any, texts: Sequence[str]) -> float:
    """The share of pieces that are unknown, a single letter or less, in a sample of texts.

    A vocabulary has a script's letters long before it has its words. A character of Chinese,
    Japanese or Korean counts as a word. Lower for a sample of fewer than `_LEAST` pieces, which
    tells little.
    """
    pieces = missed = 0
    for text in texts[:: max(1, len(texts) // _SAMPLED)]:
        before = None
        for token, place in _pieces(tokenizer, text[:_SAMPLE]):
            letters = text[slice(*place)]
            single = len(letters) == 1 and letters.isalpha() and not _CHARACTER.match(letters)
            pieces += 1
            missed += token == tokenizer.unk_token_id or single or place == before
            before = place
    return missed / max(_LEAST, pieces)


def _pieces(tokenizer: Any, text: str) -> Iterator[tuple[int, tuple[int, int]]]:
    """Token, and its first and end character."""
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return zip(found["input_ids"], found["offset_mapping"], strict=True)


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
    begin, end = 0, len(text)
    if first > _BEFORE:
        begin = first - _BEFORE
        begin = text.find(" ", begin, first) + 1 or begin
    if begin + _SNIPPET < end:
        end = begin + _SNIPPET
        if (space := text.rfind(" ", first, end)) > first:
            end = space
    parts, done = [], begin
    for start, stop, _ in marked:
        if begin <= start and stop <= end:
            parts += [text[done:start], f"**{text[start:stop]}**"]
            done = stop
    shown = " ".join("".join([*parts, text[done:end]]).split())
    if begin > 0:
        shown = f"... {shown}"
    if end < len(text):
        shown = f"{shown} ..."
    return shown
