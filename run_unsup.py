"""Train a sentence encoder on unlabelled text: InfoCSE (stage 2), SimCSE and the other methods of models/objectives.

    python run_unsup.py --config configs/infocse-bert-base.yaml [--any_flag value ...]
    accelerate launch --config_file configs/accelerate/two_gpus.yaml run_unsup.py --config ...

The same command starts, resumes and, when finished, changes nothing. The best model by the dev task is kept in
OUTPUT_DIR/best and ends up in OUTPUT_DIR, which AutoModel and SentenceTransformer load. From Python: `train`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from common.errors import run_command
from training.flags import look_over_sentences
from training.given import as_flags
from training.signals import stoppable


@stoppable
def main(argv: Sequence[str] | None = None, callbacks: Sequence[Any] = ()) -> str:
    """Parse, build, train, export, score; returns the run's folder."""
    argv = sys.argv[1:] if argv is None else argv
    known = look_over_sentences(argv, __doc__, labels=False)
    if known.finished:
        return known.finished
    from training.sentence_run import train_sentences  # here: it imports torch, and the flags are looked over first

    return train_sentences(argv, labels=False, callbacks=callbacks, inputs=known.inputs)


def train(
    text: str | PathLike | Iterable[str] | Iterable[Sequence[str]] | None = None,
    model: str | PathLike | None = None,
    method: str | None = None,
    output_dir: str | PathLike | None = None,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> str:
    """What the command does, from Python: the same start, resume, record and best model.

    Args:
        text: sentences, rows of two or three sentences, a `datasets.Dataset`, or the path of a file or folder.
        model: the checkpoint to start from: a folder or a hub id.
        method: a file of models/objectives; `simcse` where neither this nor `config` names one.
        output_dir: the run's folder.
        callbacks: `transformers.TrainerCallback`s.
        settings: every flag of the script by its name, `config` among them.

    Returns:
        The run's folder, which AutoModel, SentenceTransformer and `embedder.Embedder` load.

    Raises:
        ProjectError: what the command would print as one line.
    """
    method = method or (None if "config" in settings else "simcse")
    named = {"method": method, "model_name_or_path": model, "output_dir": output_dir}
    return main(as_flags(text, named | settings), callbacks)


if __name__ == "__main__":
    run_command(main)
