"""Words in any script: runs between spaces or, in scripts without spaces between words, pairs of characters."""

from __future__ import annotations

import re

# A regex character class: Thai to Burmese, Khmer, Chinese and Japanese with their punctuation.
UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")


def word_places(text: str) -> list[int]:
    """Return the start of every word. Two characters are about one word of Chinese or Japanese."""
    return [match.start() for match in _WORD.finditer(text)]
