"""Train a sentence encoder on unlabelled text: InfoCSE (stage 2), SimCSE and the other methods of models/objectives.

    python run_unsup.py --config configs/infocse-bert-base.yaml [--any_flag value ...]
    accelerate launch --config_file configs/accelerate/two_gpus.yaml run_unsup.py --config ...

The same command starts, resumes and, when finished, changes nothing. The best model by the dev task is kept in
OUTPUT_DIR/best and ends up in OUTPUT_DIR, which AutoModel and SentenceTransformer load.
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
    train(argv, __doc__, labels=False, default="infocse")


if __name__ == "__main__":
    run_command(main)
