"""Train a sentence encoder on labelled pairs: SBERT-NLI and ConSERT's supervised settings.

    python run_sup.py --config configs/consert-joint-bert-base.yaml [--any_flag value ...]

--train_file names natural language inference sets: tab-separated, header `premise hypothesis label`. Everything else
is as in run_unsup.py, whose runs can start from one of these: --model_name_or_path OUTPUT_DIR.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.errors import run_command
from training.flags import look_over_sentences
from training.signals import stoppable


@stoppable
def main(argv: Sequence[str] | None = None) -> str:
    """Parse, build, train, export, score; returns the run's folder."""
    argv = sys.argv[1:] if argv is None else argv
    look_over_sentences(argv, __doc__, labels=True)
    from training.sentence_run import train_sentences  # here: it imports torch, and the flags are looked over first

    return train_sentences(argv, labels=True)


if __name__ == "__main__":
    run_command(main)
