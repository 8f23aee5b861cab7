"""A text cut to some of its sentences, for the few-shot figures (ConSERT section 5.3)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from data.reader import Reader, content_hash
from errors import BadInput

SEED = 0  # of the draw; every run of a figure sees the same sentences, and a shorter text is the start of a longer one


def subset(sources: Sequence[Path], count: int, folder: Path) -> Path:
    """A file of `count` lines of the texts drawn without replacement; made once, named by its content.

    Raises:
        BadInput: the text has fewer lines.
    """
    path = folder / f"{content_hash(sources)[:10]}-{count}.txt"
    if not path.is_file():
        lines = [line for (line,) in Reader(sources)]
        if len(lines) < count:
            raise BadInput(f"{sources[0]}: {len(lines)} sentences, {count} are wanted")
        random.Random(SEED).shuffle(lines)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text("".join(line + "\n" for line in lines[:count]), encoding="utf-8")
        unfinished.replace(path)
    return path
