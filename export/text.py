"""Make text from files, flags and folder names safe for a public page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import PureWindowsPath

HIDDEN = "HIDDEN"
_NO_SYNTAX = re.compile(r"[^\w ,;.%+=()-]|(?<=www)\.", re.IGNORECASE)  # with `:` and `www.` no address becomes a link
_PLAIN = re.compile(r"[^\w .,:;%+=()/@-]")
_SECRET_FLAG = re.compile(r"(token|key|secret|password|credentials?)$", re.IGNORECASE)
_SECRET = re.compile(r"hf_\w{8,}|://")  # a token of the hub; an address may hold a password
_HOMES = {"home", "users"}


def escape(value: object) -> str:
    """One line of text for Markdown and HTML in which nothing is syntax: every special character is an entity."""
    return _NO_SYNTAX.sub(lambda found: f"&#{ord(found[0])};", _line(value))


def plain(value: object) -> str:
    """One line for a code block or a YAML value; a character that could mean anything there becomes `_`."""
    return _PLAIN.sub("_", _line(value))


def fenced(text: str, language: str) -> str:
    """A code block of our own text or of lines that are `plain`."""
    return f"```{language}\n{text.rstrip()}\n```"


def _line(value: object) -> str:
    # Control characters and the marks that turn the direction of writing around are never printable.
    return " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())


def short(value: object) -> str:
    """A path's last part, everything else as it is; no home folder, address or token of the hub comes through."""
    word = str(value)
    if _SECRET.search(word):
        return HIDDEN
    if not re.search(r"[/\\]|^~", word):
        return word
    path = PureWindowsPath(word)  # splits at both kinds of slashes
    is_home = path.parent.name.lower() in _HOMES or (path.name.startswith("~") and path.parent.name == "")
    return "PATH" if is_home or not path.name.strip(".") else path.name


def command_line(words: Iterable[str], keep: str | None = None) -> str:
    """A command with paths shortened and secrets hidden; the value `keep` (a model's public name) stays whole."""
    shown, hide = [], False
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        is_secret = hide or bool(equals and _SECRET_FLAG.search(flag))
        value = HIDDEN if is_secret else value if value == keep else short(value)
        if word.startswith("--") and not equals:
            flag = short(flag)
        shown.append(flag + equals + value)
        hide = word.startswith("--") and not equals and bool(_SECRET_FLAG.search(word))
    return " ".join(shlex.quote(plain(word)) for word in shown)
