"""Stage 1 of InfoCSE: pre-train a masked language model together with its auxiliary network.

    python run_pretrain_aux.py --config configs/aux-bert-base.yaml [--any_flag value ...]

It starts from a checkpoint, or from scratch with --config_name. The result is a masked language model with an auxiliary
head (`aux_head.safetensors`), from which stage 2 (run_unsup.py) starts. The same command resumes. In Python:
`run_pretrain_aux.train`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from common.errors import run_command
from training.flags import check_command, declared
from training.python_arguments import as_flags, joined
from training.signals import stoppable


@stoppable
def main(argv: Sequence[str] | None = None, callbacks: Sequence[Any] = ()) -> str:
    """Parse, build, train, save; returns the run's folder."""
    argv = sys.argv[1:] if argv is None else argv
    checked = check_command(argv, __doc__, "run_pretrain_aux.py", declared("PretrainArguments", "DataArguments"))
    if checked.finished:
        return checked.finished
    from training.pretrain_run import pretrain  # here: it imports torch; flags are checked first

    return pretrain(argv, callbacks, checked.inputs)


def train(
    text: str | PathLike | Iterable[str] | None = None,
    model: str | PathLike | None = None,
    output_dir: str | PathLike | None = None,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> str:
    """The command as a function; arguments as in `run_unsup.train`, but `text` is running text."""
    named = {"model_name_or_path": model, "output_dir": output_dir}
    return main(as_flags(text, joined(named, settings)), callbacks)


if __name__ == "__main__":
    run_command(main)
