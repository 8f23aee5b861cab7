"""What commands print: names come from files and may hold control characters."""

from __future__ import annotations

import re
import sys

# A terminal obeys them; the last two end lines.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def visible(text: str, kept: str = "") -> str:
    """Return text with its control characters as escapes, except the `kept` ones."""
    return _CONTROL.sub(lambda match: match[0] if match[0] in kept else ascii(match[0])[1:-1], text)


def show(text: str) -> None:
    """Print a command's result at once, so that an error of writing is one of the command."""
    sys.stdout.write(visible(f"{text}\n", "\n\t"))
    sys.stdout.flush()
