"""HTML and SVG from Python values: whatever is not markup already is escaped, so nothing can forget to."""

from __future__ import annotations

import html
import json
from typing import Any


class Markup(str):
    """Text that is HTML or SVG already and goes into a page as it stands."""


EMPTY = Markup("")
_VOID = {"input"}  # of the elements in use, those that have no end


def escaped(value: object) -> Markup:
    """A value as text of a page, or markup unchanged."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def joined(*parts: object) -> Markup:
    """Parts one after the other, each escaped unless it is markup."""
    return Markup("".join(escaped(part) for part in parts))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element; `class_` writes `class`, other underscores become hyphens, an attribute of None is left out."""
    named = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    head = "".join([name, *(f' {key}="{html.escape(str(value))}"' for key, value in named)])
    return Markup(f"<{head}>" if name in _VOID else f"<{head}>{joined(*children)}</{name}>")


def script_json(value: Any) -> Markup:
    """JSON for the inside of a <script> element: no `<`, `>` or `&`, so that no string can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
