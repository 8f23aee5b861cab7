"""The dev and test data of a run, and its end: compare, export and score the result."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.arguments import ScoredArguments
from common.streams import show
from eval.compare.intervals import Items
from eval.dev import DevSet, in_words, pairs_set, search_set
from eval.encode import Encode
from eval.scores import rows_of, score_tables, write_scores
from eval.sts import STS_DEV, merged, own_pairs
from eval.tasks import Options, count_seen, describe_seen, score_all, tasks_named, with_share_seen
from training.run_arguments import RunArguments
from training.run_folder import BEST, copy_best, installing_result, read_best

if TYPE_CHECKING:
    from models.encoder import SentenceEncoder
    from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


def dev_set(data_args: ScoredArguments) -> DevSet | None:
    """The examples that select the best model and judge the result; None for `--dev none`.

    A search set with `qrels/test.tsv` selects by `qrels/dev.tsv` and judges by `qrels/test.tsv`;
    otherwise the same examples do both.

    Raises:
        BadInput: a missing or malformed file.
    """
    if data_args.dev == "none":
        return None
    if data_args.dev_beir:
        judged = (Path(data_args.dev_beir) / "qrels/test.tsv").exists()
        return search_set(data_args.dev_beir, ["dev", "test"] if judged else ["dev"])
    if data_args.dev_file:
        return pairs_set(
            "dev_spearman", merged(own_pairs(data_args.dev_file).load(data_args.data_dir))
        )
    return pairs_set("stsb_spearman", merged(STS_DEV[0].load(data_args.data_dir)))


def load_tests(data_args: ScoredArguments, device: str) -> list:
    """The test tasks, computed on this device; loads each once, so that a missing file fails before training."""
    tests = tasks_named(
        [name for name in data_args.test_tasks if name != "none"], Options(device=device)
    )
    for task in tests:
        task.load(data_args.data_dir)
    return tests


def measure_initial(trainer: EmbeddingTrainer, dev: DevSet, tokenizer) -> Items:
    """The scores of every dev example by the initial model, without a head; call before training.

    The trainer logs their summary at step 0.
    """
    encoder = trainer.model.encoder
    head, encoder.head = encoder.head, None
    items = dev.items(_encode(trainer.args, encoder, tokenizer))
    encoder.head = head
    trainer.initial_scores = {dev.metric: dev.score_of(items)}
    return items


def save_result(
    trainer: EmbeddingTrainer,
    tokenizer,
    dev: DevSet | None,
    initial: Items | None,
) -> tuple[dict[str, Any], list[str]]:
    """Choose the result, compare it with the initial model, and write it into the run's folder.

    Args:
        trainer: after training.
        tokenizer: the encoder's.
        dev: the examples that selected the best model; None for `--dev none`, where the last model
            is the result.
        initial: what `measure_initial` returned.

    Returns:
        Facts for the record (best step, verdict, dev score by width), and the findings in words.
    """
    from models.encoder import load_encoder  # here: a finished run needs no model

    args, facts, findings = trainer.args, {}, []
    folder = Path(args.output_dir)
    if dev is None:
        logger.info("no dev task: the last model is the result")
    else:
        facts["best"] = read_best(folder, trainer.run_id)
        trainer.model.to("cpu")  # the result comes from best/; a GPU holds one model at a time
        trained, _ = load_encoder(str(folder / BEST))
        facts["verdict"] = {
            "metric": dev.metric,
            "dev_of_initial": dev.score_of(initial),
            **dev.verdict(initial, dev.items(_encode(args, trained, tokenizer))),
        }
        findings.append(in_words(facts["verdict"]))
    with installing_result(folder, trainer.run_id) as temporary:
        if dev:
            copy_best(folder, temporary)
        else:
            trainer.model.encoder.save(str(temporary), tokenizer)
    return facts, findings


def score_result(
    args: RunArguments, method: str, tests: list, texts: Iterable[str], data_dir: str
) -> dict[str, Any]:
    """Write `scores.json` of the exported model; returns how many test sentences the training text contains."""
    from models.encoder import load_encoder

    folder = Path(args.output_dir)
    encode = _encode(args, *load_encoder(str(folder)))
    results = score_all(encode, tests, data_dir)
    seen = count_seen(texts, tests, data_dir) if tests else {}
    rows = with_share_seen(rows_of(results, method, folder.name, **encode.settings), seen)
    write_scores(folder / "scores.json", results, rows)
    if rows:
        show(score_tables({folder.name: rows}))
    if message := describe_seen(seen):
        logger.warning(message)
    return seen


def _encode(args: RunArguments, encoder: SentenceEncoder, tokenizer) -> Encode:
    return Encode(encoder.to(args.device), tokenizer, bf16=args.bf16)
