"""Train a sentence encoder on unlabelled text: InfoCSE (stage 2), SimCSE and other methods.

    python run_unsup.py --config configs/infocse-bert-base.yaml [--any_flag value ...]
    accelerate launch --config_file configs/accelerate/two_gpus.yaml run_unsup.py --config ...

The same command starts a run, resumes it, and leaves a finished one unchanged. The result, the best
model on the dev task, is in OUTPUT_DIR for AutoModel and SentenceTransformer. Methods are the files
of models/objectives. In Python: `infocse.train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.errors import run_command
from common.signals import stoppable
from training.methods import UNSUP


@stoppable
def main(argv: Sequence[str] | None = None, callbacks: Sequence[Any] = ()) -> str:
    """Parse, build, train, export, score; returns the run's folder."""
    from training.settings import read  # here: signals are handled during the slow imports

    settings = read(UNSUP, argv, __doc__)
    from training.stages import train_sentences  # here: --help and refused settings need none of it

    return train_sentences(settings, callbacks)


if __name__ == "__main__":
    run_command(main)
