"""Train a sentence encoder on labelled pairs: SBERT-NLI and ConSERT's supervised settings.

    python run_sup.py --config configs/consert-joint-bert-base.yaml [--any_flag value ...]

--train_file is natural language inference data: tab-separated, header `premise hypothesis label`.
Everything else is as in run_unsup.py, which can train the result further: --model_name_or_path
OUTPUT_DIR. In Python: `run_sup.train`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from common.errors import run_command
from common.signals import stoppable
from data.given import with_text
from training.methods import SUP


@stoppable
def main(argv: Sequence[str] | None = None, callbacks: Sequence[Any] = ()) -> str:
    """Parse, build, train, export, score; returns the run's folder."""
    from training.settings import read  # here: signals are handled during the slow imports

    settings = read(SUP, argv, __doc__)
    from training.stages import train_sentences  # here: --help and refused settings need none of it

    return train_sentences(settings, callbacks)


@stoppable
def train(
    pairs: str | PathLike | Iterable[Sequence[str]] | None = None,
    model: str | PathLike | None = None,
    method: str | None = None,
    output_dir: str | PathLike | None = None,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> str:
    """The command as a function; arguments as in `run_unsup.train`, except two.

    `pairs` are rows (premise, hypothesis, label), a `datasets.Dataset` with these columns, or the
    path of a file. The method defaults to `nli` unless `config` is given.
    """
    method = method or (None if "config" in settings else "nli")
    named = {"method": method, "model_name_or_path": model, "output_dir": output_dir}
    from training.settings import fill
    from training.stages import train_sentences

    return train_sentences(fill(SUP, with_text(pairs, named | settings, labelled=True)), callbacks)


if __name__ == "__main__":
    run_command(main)
