"""From files to what the models are shown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from common.errors import BadInput
from eval.analyse.analysis import Analysis, Material, distinct
from eval.lines import read_lines
from eval.sts.tasks import StsTask, merged

QUERIES = 5  # the first so many sentences, where no queries are given


def read_sentences(path: str, least: int) -> list[str]:
    """The distinct sentences of a text file, one a line, white space tidied, blank lines left out.

    Raises:
        BadInput: the file cannot be read, or holds fewer than `least` distinct sentences.
    """
    lines = (" ".join(line.split()) for line in read_lines(Path(path)))
    found = distinct([line for line in lines if line])
    if len(found) < least:
        raise BadInput(f"{path}: {len(found)} distinct sentences, one a line; at least {least} needed")
    return found


def gather(
    analyses: Iterable[Analysis], task: StsTask, data_dir: str, sentences: str | None, queries: str | None, above: float
) -> Material:
    """Everything read and checked before a model is loaded; the pairs only where they are needed.

    Args:
        analyses: those that were chosen.
        task: the scored pairs.
        data_dir: folder with `senteval/downstream`.
        sentences: text file for the analyses that need no pairs; None for the sentences of the pairs.
        queries: text file for the neighbours; None for the first sentences.
        above: pairs with a gold score above it are positives.

    Raises:
        BadInput: a missing, malformed or empty file.
    """
    pairs = None
    if sentences is None or any(analysis.needs_pairs for analysis in analyses):
        pairs = merged(task.load(data_dir))
    name = f"{task.name} {task.split}"
    chosen = distinct(pairs.left + pairs.right) if sentences is None else read_sentences(sentences, 2)
    if len(chosen) < 2:
        raise BadInput(f"{name}: {len(chosen)} distinct sentences; at least 2 needed")
    asked = chosen[:QUERIES] if queries is None else read_sentences(queries, 1)
    return Material(name, pairs, name if sentences is None else Path(sentences).name, chosen, asked, above)
