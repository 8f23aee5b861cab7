"""Train a sentence encoder on unlabelled text: InfoCSE (stage 2), SimCSE and the other methods of
models/objectives.

    python run_unsup.py --config configs/infocse-bert-base.yaml [--any_flag value ...]
    accelerate launch --config_file configs/accelerate/two_gpus.yaml run_unsup.py --config ...

The same command starts a run, resumes it, and leaves a finished one unchanged. The result, the best
model on the dev task, is in OUTPUT_DIR for AutoModel and SentenceTransformer. In Python:
`run_unsup.train`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from common.errors import run_command
from common.signals import stoppable
from data.given import with_text
from training.methods import UNSUP


@stoppable
def main(argv: Sequence[str] | None = None, callbacks: Sequence[Any] = ()) -> str:
    """Parse, build, train, export, score; returns the run's folder."""
    from training.settings import read  # here: signals are handled during the slow imports

    settings = read(UNSUP, argv, __doc__)
    from training.stages import train_sentences  # here: --help and refused settings need none of it

    return train_sentences(settings, callbacks)


@stoppable
def train(
    text: str | PathLike | Iterable[str] | Iterable[Sequence[str]] | None = None,
    model: str | PathLike | None = None,
    method: str | None = None,
    output_dir: str | PathLike | None = None,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> str:
    """The command as a function: same start, resume, record and best model.

    Args:
        text: sentences, rows of two or three sentences, a `datasets.Dataset`, or the path of a file
            or folder.
        model: the initial model: a folder or a hub id.
        method: a file of models/objectives; default: `simcse`, unless `config` is given.
        output_dir: the run's folder.
        callbacks: `transformers.TrainerCallback`s.
        settings: any flag of the script by name, including `config`.

    Returns:
        The run's folder, which AutoModel, SentenceTransformer and `embedder.Embedder` load.

    Raises:
        ProjectError: any error that the command would print as one line.
    """
    method = method or (None if "config" in settings else "simcse")
    named = {"method": method, "model_name_or_path": model, "output_dir": output_dir}
    from training.settings import fill
    from training.stages import train_sentences

    return train_sentences(fill(UNSUP, with_text(text, named | settings)), callbacks)


if __name__ == "__main__":
    run_command(main)
