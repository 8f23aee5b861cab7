"""The dev and test data of a run, and its end: compare, export and score the result."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from common.arguments import ModelArguments, ScoredArguments
from common.errors import BadInput
from common.files import hashes
from common.streams import show
from eval.dev import DevSet, in_words, pairs_set, search_set
from eval.encode import Encode
from eval.scores import rows_of, tables, write_scores
from eval.sts import STS_DEV, merged, own_pairs
from eval.tasks import Options, count_seen, describe_seen, score_all, tasks_named, with_share_seen
from models.encoder import SentenceEncoder, load_encoder
from models.families import attend_both_ways
from models.loading import load_backbone
from models.pooling import pooling_named
from training.checkpoint import BEST, copy_best, read_best, replacing_files
from training.run_arguments import RunArguments
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


def dev_set(data_args: ScoredArguments, pooling: str) -> DevSet | None:
    """The examples that select the best model and judge the result; None for `--dev none`.

    A search set with `qrels/test.tsv` selects by `qrels/dev.tsv` and judges by `qrels/test.tsv`; otherwise the same
    examples do both.

    Raises:
        BadInput: nothing to mix with; a missing or malformed file.
    """
    if data_args.start_shares and pooling_named(pooling).keeps_head:
        raise BadInput(
            f"--start_shares: the initial model has no head to mix with that of --pooling {pooling}; give --pooling "
            "cls_before_pooler ([CLS] without a head) or avg"
        )
    if data_args.dev == "none":
        return None
    if data_args.dev_beir:
        judged = (Path(data_args.dev_beir) / "qrels/test.tsv").exists()
        return search_set(data_args.dev_beir, ["dev", "test"] if judged else ["dev"])
    if data_args.dev_file:
        return pairs_set("dev_spearman", merged(own_pairs(data_args.dev_file).load(data_args.data_dir)))
    return pairs_set("stsb_spearman", merged(STS_DEV[0].load(data_args.data_dir)))


def load_tests(data_args: ScoredArguments, device: str) -> list:
    """The test tasks, computed on this device; loads each once, so that a missing file fails before training."""
    tests = tasks_named([name for name in data_args.test_tasks if name != "none"], Options(device=device))
    for task in tests:
        task.load(data_args.data_dir)
    return tests


def save_result(
    trainer: EmbeddingTrainer,
    model_args: ModelArguments,
    shares: Sequence[float],
    record: dict[str, Any],
    tokenizer,
    dev: DevSet | None,
) -> tuple[dict[str, Any], list[str]]:
    """Choose the result, compare it with the initial model, and write it into the run's folder.

    Args:
        trainer: after training.
        model_args: of the run.
        shares: of the initial weights, to try mixing into the best model.
        record: of the run; gets the hashes of the result.
        tokenizer: the encoder's.
        dev: the examples that selected the best model; None for `--dev none`, where the last model is the result.

    Returns:
        Facts for the record (best step, verdict, dev score by width), and the findings in words.
    """
    args, facts, findings, mixture = trainer.args, {}, [], None
    folder = Path(args.output_dir)
    if dev is None:
        logger.info("no dev task: the last model is the result")
    else:
        facts["best"] = read_best(folder, trainer.run_id)
        trainer.model.to("cpu")  # the result comes from best/; a GPU holds one model at a time
        mixture, facts["verdict"] = _compare(args, model_args, shares, tokenizer, dev)
        findings.append(in_words(facts["verdict"]))
    with replacing_files(folder) as temporary:
        if mixture is not None:
            mixture.save(str(temporary), tokenizer)
        elif dev:
            copy_best(folder, temporary)
        else:
            trainer.model.encoder.save(str(temporary), tokenizer)
        record["result"] = hashes(temporary)
    if dev and (widths := model_args.matryoshka_dims):
        facts["dev_by_width"] = dev.scores(_encode(args, *load_encoder(str(folder))), widths)
        scores = ", ".join(f"{name} {value:.2f}" for name, value in facts["dev_by_width"].items())
        findings.append(f"the whole vector and its prefixes: {scores}")
    return facts, findings


def score_result(args: RunArguments, method: str, tests: list, texts: Iterable[str], data_dir: str) -> dict[str, Any]:
    """Write `scores.json` of the exported model; returns how many test sentences the training text contains."""
    folder = Path(args.output_dir)
    encode = _encode(args, *load_encoder(str(folder)))
    results = score_all(encode, tests, data_dir)
    seen = count_seen(texts, tests, data_dir) if tests else {}
    rows = with_share_seen(rows_of(results, method, folder.name, **encode.settings), seen)
    write_scores(folder / "scores.json", results, rows)
    if rows:
        show(tables({folder.name: rows}))
    if message := describe_seen(seen):
        logger.warning(message)
    return seen


def _compare(
    args: RunArguments, model_args: ModelArguments, shares: Sequence[float], tokenizer, dev: DevSet
) -> tuple[SentenceEncoder | None, dict[str, Any]]:
    """The mixture that is better on the dev set than the best model, if any, and the verdict against the initial model.

    A share of 1 is the initial model itself.
    """
    trained, _ = load_encoder(str(Path(args.output_dir) / BEST))
    initial = _initial_encoder(model_args, trained)
    models = (
        {0.0: trained} | {share: trained.mixed_with(initial, share) for share in sorted({*shares})} | {1.0: initial}
    )
    items = {}
    for share, encoder in models.items():
        items[share] = dev.items(_encode(args, encoder, tokenizer))
        encoder.to("cpu")
    scores = {share: dev.score_of(scored) for share, scored in items.items()} if shares else {0.0: None}
    best = max(scores, key=scores.__getitem__)
    verdict = {"metric": dev.metric, **dev.verdict(items[1.0], items[best])}
    if shares:
        verdict |= {"start_share": best, "dev_by_start_share": {str(share): score for share, score in scores.items()}}
    return (models[best] if best else None), verdict


def _initial_encoder(model_args: ModelArguments, trained: SentenceEncoder) -> SentenceEncoder:
    """The encoder from which a run started, without a head; other traits as in `trained`."""
    pooling = "cls_before_pooler" if pooling_named(model_args.pooling).keeps_head else model_args.pooling
    backbone = load_backbone(model_args.model_name_or_path)
    if model_args.bidirectional:
        attend_both_ways(backbone)
    traits = {"place": trained.place, "prompts": trained.prompts, "default_prompt": trained.default_prompt}
    initial = SentenceEncoder(backbone, pooling, None, trained.max_length, trained.packed, **traits)
    initial.normalized = trained.normalizes
    return initial


def _encode(args: RunArguments, encoder: SentenceEncoder, tokenizer) -> Encode:
    return Encode(encoder.to(args.device), tokenizer, bf16=args.bf16)
