"""Training curves, and whether the auxiliary network conditions on [CLS].

The shuffled-[CLS] loss increase measures the latter: the auxiliary loss with a neighbouring
sentence's [CLS] minus the loss with its own.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import BadInput

OWN, OTHER, INCREASE = "eval_aux_mlm", "eval_aux_mlm_shuffled_cls", "eval_aux_loss_increase"
UNIFORMITY = "eval_uniformity"
COLLAPSED = -0.05  # uniformity; 0: all vectors are parallel; untrained BERT has about -1.5
CLEAR = 0.3  # nats per masked token; below it the sentence vector hardly helps
_NOT_DRAWN = frozenset(
    "epoch step grad_norm learning_rate loss tokens train_loss train_runtime total_flos "
    "train_samples_per_second train_steps_per_second".split()
)
History = Sequence[dict[str, Any]]


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log, `log.jsonl`; none if it is missing.

    Raises:
        BadInput: a line is damaged.
    """
    path = folder / "log.jsonl"
    lines: list[dict[str, Any]] = []
    if not path.is_file():
        return lines
    try:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if not isinstance(line, dict) or "step" not in line:
                raise ValueError("no 'step'")
            lines.append(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}:{len(lines) + 1}: the log is damaged ({error})") from error
    return lines


class AuxiliaryLosses(NamedTuple):
    """The auxiliary losses at one evaluation, in nats per token.

    `tokens` is the number read so far; None in older logs.
    """

    step: int
    tokens: int | None
    own: float
    other: float

    @property
    def increase(self) -> float:
        return self.other - self.own


def auxiliary_losses(history: History) -> list[AuxiliaryLosses]:
    """Every evaluation in a Trainer's log history that has both losses."""
    return [
        AuxiliaryLosses(line["step"], line.get("tokens"), line[OWN], line[OTHER])
        for line in history
        if OWN in line and OTHER in line
    ]


def describe_conditioning(history: History) -> str | None:
    """What a run's auxiliary losses say; None for a run without an auxiliary network."""
    evaluations = auxiliary_losses(history)
    if not evaluations:
        return None
    last = evaluations[-1]
    losses = f"loss {last.own:.3f} with its own [CLS], {last.other:.3f} with another's"
    if not last.increase >= CLEAR:  # true for NaN too
        return (
            f"the auxiliary network hardly conditions on [CLS] ({losses}): expect the result of "
            "the contrastive loss alone; configs/aux-retromae-bert-base.yaml trains one that does"
        )
    first = next(point for point in evaluations if point.increase >= CLEAR)
    tokens = f" ({first.tokens:,} tokens)" if first.tokens else ""
    return (
        f"the auxiliary network conditions on [CLS] ({losses}), clearly from step "
        f"{first.step}{tokens} on"
    )


def describe_collapse(history: History, equal_texts: bool = False) -> str | None:
    """Why the vectors at the last evaluation are nearly parallel; None if they are not.

    Args:
        history: the lines of a Trainer's log.
        equal_texts: whether they are the vectors of one repeated text.
    """
    evaluations = [line for line in history if UNIFORMITY in line]
    if not evaluations or not evaluations[-1][UNIFORMITY] > COLLAPSED:
        return None
    first, last = evaluations[0], evaluations[-1]
    before, after = (
        f"uniformity {line[UNIFORMITY]:.3f} at step {line['step']}" for line in (first, last)
    )
    if equal_texts:
        return f"all examined texts are equal ({after}): is the text one repeated line?"
    if first["step"] == 0 and first[UNIFORMITY] > COLLAPSED:
        return f"the checkpoint's vectors are nearly parallel ({before}): is it untrained?"
    return (
        f"the encoder has collapsed ({before}, {after}): lower --learning_rate, or train stage 1 "
        "for longer"
    )


def describe_unrepeated(history: History, best: Mapping[str, Any]) -> str | None:
    """One line if the best model's score is not in the log: a resume has repeated its step."""
    if any(line["step"] == best["step"] and best["value"] in line.values() for line in history):
        return None
    return (
        f"the best model scored {best['value']:.2f} at step {best['step']} before a resume, which "
        "repeated the step with another score"
    )


def logged(history: History) -> dict[str, tuple[list[int], list[float]]]:
    """Name -> steps and values of every curve in a Trainer's log history, and of the increase."""
    curves: dict[str, tuple[list[int], list[float]]] = {}
    if losses := auxiliary_losses(history):
        curves[INCREASE] = [point.step for point in losses], [point.increase for point in losses]
    for line in history:
        for name, value in line.items():
            if name not in _NOT_DRAWN:
                steps, values = curves.setdefault(name, ([], []))
                steps.append(line["step"])
                values.append(value)
    return curves


def dev_unit(name: str) -> str | None:
    """The unit of a curve that is a dev score; None for any other curve."""
    return "x 100" if name.startswith(("eval_dev_", "eval_stsb_")) else None
