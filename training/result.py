"""The end of a run: compare the result with the initial model, export, score and record it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from common.streams import show
from eval.compare.intervals import Items, score_of
from eval.dev import DevScore, in_words, verdict
from eval.encode import Encode
from eval.scores import rows_of, score_tables, write_scores
from eval.tasks import Task, count_seen, describe_seen, score_all
from models.encoder import load_encoder
from training.curves import describe_collapse, describe_conditioning, describe_unrepeated
from training.run_arguments import RunArguments
from training.run_folder import BEST, copy_best, installing_result, read_best, write_run
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


def measure_initial(trainer: EmbeddingTrainer, dev: DevScore, tokenizer) -> Items:
    """The scores of every dev example by the initial model, without a head; call before training.

    The trainer logs their summary at step 0.
    """
    encoder = trainer.model.encoder
    head, encoder.head = encoder.head, None
    items = dev.items(_encode(trainer.args, encoder, tokenizer))
    encoder.head = head
    trainer.initial_scores = {dev.metric: score_of(items)}
    return items


def save_best(
    trainer: EmbeddingTrainer, tokenizer, dev: DevScore, initial: Items
) -> tuple[dict[str, Any], str]:
    """Write the best model into the run's folder, and compare it with the initial one.

    `initial` is what `measure_initial` returned.

    Returns:
        Facts for the record (best step and score, verdict), and the verdict in words.
    """
    folder = Path(trainer.args.output_dir)
    best = read_best(folder, trainer.run_id)
    trainer.model.to("cpu")  # a GPU holds one model at a time
    encoder, _ = load_encoder(str(folder / BEST))
    result = dev.items(_encode(trainer.args, encoder, tokenizer))
    facts = {"metric": dev.metric, "title": dev.title, "dev_of_initial": score_of(initial)}
    facts |= verdict(initial, result)
    with installing_result(folder, trainer.run_id) as temporary:
        copy_best(folder, temporary)
    return {"best": best, "verdict": facts}, in_words(facts)


def score_result(
    args: RunArguments, method: str, tests: Sequence[Task], texts: Iterable[str], data_dir: str
) -> dict[str, Any]:
    """Write `scores.json` of the exported model.

    Returns:
        How many test sentences the training text contains.
    """
    folder = Path(args.output_dir)
    encode = _encode(args, *load_encoder(str(folder)))
    results = score_all(encode, tests, data_dir)
    seen = count_seen(texts, tests, data_dir) if tests else {}
    rows = rows_of(results, method, folder.name, **encode.settings)
    write_scores(folder / "scores.json", results, rows)
    if rows:
        show(score_tables({folder.name: rows}))
    if message := describe_seen(seen):
        logger.warning(message)
    return seen


def finish(
    trainer: EmbeddingTrainer, record: dict[str, Any], began: float, verdict: str | None = None
) -> None:
    """Log the findings and, as the last write, mark the run finished."""
    state, folder = trainer.state, trainer.args.output_dir
    ended = None
    if state.global_step < state.max_steps:
        ended = f"training ended after step {state.global_step} of {state.max_steps}"
    collapse = describe_collapse(state.log_history, trainer.probes_equal_texts)
    unrepeated = None
    if "best" in record:
        unrepeated = describe_unrepeated(state.log_history, record["best"])
    found = ended, describe_conditioning(state.log_history), verdict, unrepeated, collapse
    findings = [finding for finding in found if finding]
    for finding in findings:
        logger.info(finding)
    seconds = round(time.time() - began, 1)
    facts = {
        "findings": findings,
        "steps": state.global_step,
        "seconds_of_last_start": seconds,
        "status": "finished",
    }
    write_run(folder, record | facts)
    failed = ", but its vectors are nearly parallel" if collapse else ""
    logger.info("%s: finished in %.0f s%s", folder, seconds, failed)


def _encode(args: RunArguments, encoder: nn.Module, tokenizer) -> Encode:
    return Encode(encoder.to(args.device), tokenizer, bf16=args.bf16)
