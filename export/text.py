"""Render templates, with text from files, flags and folder names escaped."""

import re
from pathlib import Path, PureWindowsPath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

HIDDEN = "HIDDEN"
_TOKEN = re.compile(r"(\[(?:CLS|SEP|MASK|PAD|UNK)\](?![\[(:]))")  # no link, nor its address
# `->` is plain text; escaping `://`, `www.` and `@` prevents autolinks.
_SYNTAX = re.compile(r"[^\w ,;.%+=()/'\"?:>-]|(?<=www)\.|:(?=/)|(?<!-)>", re.IGNORECASE)
_PLAIN = re.compile(r"[^\w .,:;%+=()/@-]")
_SECRET = re.compile(r"hf_\w{8,}|://")  # a hub token; a URL, which may contain a password
_HOMES = {"home", "users"}


def escape(value: object) -> str:
    """One line of text for Markdown, with every character that could be syntax as an entity.

    `[CLS]` and `->` stay.
    """
    parts = _TOKEN.split(_line(value))  # every second one is a token
    parts[::2] = [_SYNTAX.sub(lambda match: f"&#{ord(match[0])};", part) for part in parts[::2]]
    return "".join(parts)


def plain(value: object) -> str:
    """One line for a code block or a YAML value, with every special character replaced by `_`."""
    return _PLAIN.sub("_", _line(value))


def _line(value: object) -> str:
    # Control characters and marks of writing direction are not printable.
    return " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())


def short(value: object) -> str:
    """The last part of a path, other values unchanged; hides home folders, URLs and hub tokens."""
    word = str(value)
    if _SECRET.search(word):
        return HIDDEN
    if not re.search(r"[/\\]|^~", word):
        return word
    path = PureWindowsPath(word)  # splits at / and \
    is_home = path.parent.name.lower() in _HOMES or (
        path.name.startswith("~") and path.parent.name == ""
    )
    return "PATH" if is_home or not path.name.strip(".") else path.name


def rendered(template: str, **values: Any) -> Markup:
    """Render a template of this folder; values other than Markup are escaped."""
    text = PAGES.get_template(template).render(values)
    return Markup(re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")


PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(value)),
)
PAGES.filters |= {"ours": Markup, "short": short}
