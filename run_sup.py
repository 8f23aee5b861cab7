"""Train a sentence encoder on labelled pairs: SBERT-NLI and ConSERT's supervised settings.

    python run_sup.py --config configs/consert-joint-bert-base.yaml [--any_flag value ...]

--train_file names natural language inference sets: tab-separated, header `premise hypothesis label`. Everything else
is as in run_unsup.py, whose runs can start from one of these: --model_name_or_path OUTPUT_DIR.
"""

from __future__ import annotations

import sys

from common.errors import run_command
from training.faults import stoppable
from training.sentence_run import train


@stoppable
def main(argv: list[str] | None = None) -> None:
    """Parse, build, train, export, score."""
    argv = sys.argv[1:] if argv is None else argv
    train(argv, __doc__, labels=True, default="nli")


if __name__ == "__main__":
    run_command(main)
