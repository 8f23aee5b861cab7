"""Train a sentence encoder on labelled pairs: SBERT-NLI and ConSERT's supervised settings.

    python run_sup.py --config configs/consert-joint-bert-base.yaml [--any_flag value ...]

--train_file is natural language inference data: tab-separated, header `premise hypothesis label`.
Everything else is as in run_unsup.py, which can train the result further: --model_name_or_path
OUTPUT_DIR. In Python: `infocse.train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.errors import run_command
from common.signals import stoppable
from training.methods import SUP


@stoppable
def main(argv: Sequence[str] | None = None, callbacks: Sequence[Any] = ()) -> str:
    """Parse, build, train, export, score; returns the run's folder."""
    from training.settings import read  # here: signals are handled during the slow imports

    settings = read(SUP, argv, __doc__)
    from training.stages import train_sentences  # here: --help and refused settings need none of it

    return train_sentences(settings, callbacks)


if __name__ == "__main__":
    run_command(main)
