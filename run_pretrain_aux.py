"""Stage 1 of InfoCSE: pre-train a masked language model together with its auxiliary network.

    python run_pretrain_aux.py --config configs/aux-bert-base.yaml [--any_flag value ...]

It starts from a checkpoint, or from scratch with --config_name. The result is a masked language
model with an auxiliary head (`aux_head.safetensors`), from which stage 2 (run_unsup.py) starts. The
same command resumes. In Python: `infocse.pretrain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.errors import run_command
from common.signals import stoppable
from training.methods import STAGE_ONE


@stoppable
def main(argv: Sequence[str] | None = None, callbacks: Sequence[Any] = ()) -> str:
    """Parse, build, train, save; returns the run's folder."""
    from training.settings import read  # here: signals are handled during the slow imports

    settings = read(STAGE_ONE, argv, __doc__)
    from training.stages import pretrain  # here: --help and refused settings need none of it

    return pretrain(settings, callbacks)


if __name__ == "__main__":
    run_command(main)
