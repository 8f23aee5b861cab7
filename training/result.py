"""The end of a run: choose between start and trained weights, compare them, export and score."""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from common.arguments import ScoredArguments
from common.errors import BadInput
from common.files import read_json
from common.streams import show
from eval.dev import DevSet, clears, halves_set, in_words, pairs_set, search_set
from eval.encode import Encode
from eval.scores import rows_of, tables, write_scores
from eval.sts import STS_DEV, merged, own_pairs
from eval.tasks import Options, count_seen, describe_seen, score_all, tasks_named, with_share_seen
from models.contrast import mean_cosine, uniformity
from models.encoder import SentenceEncoder, load_encoder
from models.families import attend_both_ways
from models.folder import is_inside
from models.loading import load_backbone
from models.pooling import pooling_named
from models.saved_format import read_modules
from training.best import BEST, copy_best, read_best
from training.provenance import MODEL_FILES
from training.run import Run
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)
_HALVES = 128  # held-out texts that replace the dev task of a run without one
_SPREADS = {"uniformity": uniformity, "mean_cosine": mean_cosine}
_LONGEST = 512  # tokens per held-out text
_PARTS = (*MODEL_FILES, "config_sentence_transformers.json", "LICENSE*")


def dev_set(data_args: ScoredArguments, pooling: str) -> DevSet | None:
    """The examples that select the best model and judge the result; None for `--dev none`.

    A search set with `qrels/test.tsv` selects by `qrels/dev.tsv` and judges by `qrels/test.tsv`; otherwise the same
    examples do both.

    Raises:
        BadInput: conflicting flags; a missing or malformed file.
    """
    shares, given = data_args.start_shares, [name for name in ("dev_file", "dev_beir") if getattr(data_args, name)]
    if len(given) > 1:
        raise BadInput("--dev_file and --dev_beir: only one of them can select the best model; leave one out")
    unused = [*given, *(name for name in ("start_shares", "keep_start", "patience") if getattr(data_args, name))]
    if data_args.dev == "none" and unused:
        raise BadInput(f"--dev none --{unused[0]}: without a dev score it has no effect; leave one of them out")
    if shares and pooling_named(pooling).keeps_head:
        raise BadInput(f"--start_shares: the start has no head to mix with that of --pooling {pooling}; give --pooling "
                       "cls_before_pooler ([CLS] without a head) or avg")  # fmt: skip
    if data_args.least_gain and not data_args.keep_start:
        logger.warning("--least_gain %s has no effect without --keep_start true", data_args.least_gain)
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


def finish(
    run: Run,
    trainer: EmbeddingTrainer,
    tokenizer,
    dev: DevSet | None,
    tests: list,
    data_args: ScoredArguments,
    texts: Iterable[str],
) -> None:
    """Choose and judge the result, export it to the run's folder, score it, and complete the record.

    Args:
        run: the run.
        trainer: after training.
        tokenizer: the encoder's.
        dev: the examples that selected the best model; None for `--dev none`.
        tests: the tasks of `--test_tasks`.
        data_args: options.
        texts: the training text.
    """
    folder, facts = Path(run.args.output_dir), {}
    if dev:
        facts["best"] = read_best(folder, trainer.run_id)
    encoder, facts["verdict"] = _choose(run, trainer, tokenizer, dev, data_args)
    if encoder is not None and run.record["settings"]["lora_keep"]:
        logger.warning("no adapter/ beside the result: it is the start, or a mixture with it, which has no adapters")
    if encoder is not None and facts["verdict"]["shipped"] == "start":
        run.export(lambda place: _save_start(run, encoder, place, tokenizer))
    elif encoder is not None:
        run.export(lambda place: encoder.save(place, tokenizer))
    elif dev:
        run.export(lambda place: copy_best(folder, place))
    else:
        logger.info("no dev task: the last model is the result")
        run.export(lambda place: trainer.model.encoder.save(place, tokenizer))
    findings = [in_words(facts["verdict"])] if facts["verdict"] else []
    if dev and (widths := run.record["settings"]["matryoshka_dims"]):
        facts["dev_by_width"] = dev.scores(_encode(run, *load_encoder(str(folder))), widths)
        scores = ", ".join(f"{name} {value:.2f}" for name, value in facts["dev_by_width"].items())
        findings.append(f"the whole vector and its prefixes: {scores}")
    facts["seen_test_texts"] = _score(run, tests, data_args.data_dir, texts)
    run.finish(trainer, facts, findings)
    logger.info("next: %s", "; ".join(_next(folder, data_args)))


def _next(folder: Path, data_args: ScoredArguments) -> list[str]:
    """Suggested next commands; an evaluation only if its data is present."""
    name, tasks = shlex.quote(str(folder)), {*data_args.test_tasks} - {"none"}
    if data_args.dev_file and data_args.dev != "none":
        evaluate = [f"python -m eval {name} --dev_file {shlex.quote(data_args.dev_file)}"]
    else:
        evaluate = [f"python -m eval {name} --tasks {' '.join(map(shlex.quote, sorted(tasks)))}"] if tasks else []
    export = f"python -m export {name} --output exports/{shlex.quote(folder.name)}"
    return [*evaluate, f"python -m report {name} --output report.html", export]


def _score(run: Run, tests: list, data_dir: str, texts: Iterable[str]) -> dict[str, dict[str, int]]:
    """Write `scores.json` of the exported model; returns how many test sentences the training text contains."""
    folder = Path(run.args.output_dir)
    encoder, tokenizer = load_encoder(str(folder))
    encode = _encode(run, encoder, tokenizer)
    results = score_all(encode, tests, data_dir)
    seen = count_seen(texts, tests, data_dir) if tests else {}
    rows = rows_of(results, run.record["settings"]["method"], folder.name, **encode.settings)
    rows = with_share_seen(rows, seen)
    write_scores(folder / "scores.json", results, rows)
    if rows:
        show(tables({folder.name: rows}), folder / "scores.json")
    if message := describe_seen(seen):
        logger.warning(message)
    return seen


def _choose(
    run: Run, trainer: EmbeddingTrainer, tokenizer, dev: DevSet | None, data_args: ScoredArguments
) -> tuple[SentenceEncoder | None, dict[str, Any] | None]:
    """The encoder to export, None for the trained one unchanged, and the comparison with the start."""
    judge = dev or _halves(trainer, tokenizer)
    if judge is None:
        return None, None
    trained = trainer.model.encoder
    if dev is not None:
        trained, _ = load_encoder(str(Path(run.args.output_dir) / BEST))
    start = start_of(run.record["settings"], trained)
    models = {0.0: trained} | {share: trained.mixed_with(start, share) for share in sorted(set(data_args.start_shares))}
    models[1.0] = start
    if dev is not None:
        trainer.model.to("cpu")  # the result comes from best/; a GPU holds one model at a time
    items = {}
    for share, encoder in models.items():
        items[share] = judge.items(_encode(run, encoder, tokenizer))
        encoder.to("cpu")
    scores = {share: judge.score_of(one) for share, one in items.items()} if data_args.start_shares else {0.0: None}
    best = max(scores, key=scores.__getitem__)
    found = {"metric": judge.metric, **judge.verdict(items[1.0], items[best]), "shipped": "result"}
    if dev is None:
        encoders = (_encode(run, one, tokenizer) for one in (start, trained))
        found |= _spread([" ".join(pair) for pair in judge.content], *encoders)
    if data_args.start_shares:
        found |= {"start_share": best, "dev_by_start_share": {str(share): score for share, score in scores.items()}}
    if data_args.keep_start and not clears(found, data_args.least_gain):
        return start, found | {"shipped": "start", "least_gain": data_args.least_gain}
    return (models[best] if best else None), found


def _halves(trainer: EmbeddingTrainer, tokenizer) -> DevSet | None:
    """The held-out texts as a search task; None if too few have two words."""
    text, held = trainer.data_collator.text, trainer.sampler.held[:_HALVES]
    columns = range(text.columns)
    rows = [[tokenizer.decode(text.sentences([row], column, _LONGEST)[0]) for column in columns] for row in held]
    try:
        return halves_set(rows)
    except BadInput:
        return None


def _spread(texts: list[str], *encoders: Encode) -> dict[str, list[float]]:
    """Uniformity and mean cosine of the texts for each encoder."""
    vectors = [torch.from_numpy(encode(texts)) for encode in encoders]
    return {name: [float(measure(one)) for one in vectors] for name, measure in _SPREADS.items()}


def start_of(settings: Mapping[str, Any], trained: SentenceEncoder) -> SentenceEncoder:
    """The encoder that a run with these settings started from, without a head; template and length as in `trained`."""
    source, pooling = settings["model_name_or_path"], settings["pooling"]
    if pooling_named(pooling).keeps_head:
        pooling = "cls_before_pooler"
    backbone = load_backbone(source)
    if settings["bidirectional"]:
        attend_both_ways(backbone)
    own = {"place": trained.place, "prompts": trained.prompts, "default_prompt": trained.default_prompt}
    start = SentenceEncoder(backbone, pooling, None, trained.max_length, trained.packed, **own)
    start.normalized = trained.normalizes
    return start


def _save_start(run: Run, encoder: SentenceEncoder, place: str, tokenizer) -> None:
    """Write the start: the files of a sentence-transformers folder are copied.

    If the run uses it differently (pooling, head, template, attention, prompts), or a file is a link that leaves the
    folder, it is saved as it was judged.
    """
    settings = run.record["settings"]
    source = Path(settings["model_name_or_path"])
    changed = settings["bidirectional"] or encoder.place is not None
    as_it_is = not changed and _pooled_by(str(source), encoder.prompts) == encoder.pooling
    files = _parts(source) if as_it_is else []
    if not files or not all(is_inside(source, file) for file in files):
        encoder.save(place, tokenizer)
        return
    for file in files:
        copy = Path(place) / file.relative_to(source)
        copy.parent.mkdir(exist_ok=True, parents=True)
        shutil.copyfile(file, copy)


def _parts(source: Path) -> list[Path]:
    """The files of a sentence-transformers folder that describe its backbone, tokenizer and modules."""
    modules = read_json(source / "modules.json", "a description of the model", kind=list)
    places = {source / (module.get("path") or "") for module in modules} - {source}
    files = [file for pattern in _PARTS for file in source.glob(pattern)]
    files += [file for place in places for pattern in ("config.json", "*.safetensors") for file in place.glob(pattern)]
    return sorted(files)


def _pooled_by(source: str, prompts: Mapping[str, str]) -> str | None:
    """The pooling of a sentence-transformers folder with these prompts; None for other models, or one with a head."""
    try:
        found = read_modules(source) if (Path(source) / "modules.json").is_file() else None
    except BadInput:
        return None
    return found.pooling if found and len(found.head) == found.normalizes and found.prompts == prompts else None


def _encode(run: Run, encoder: SentenceEncoder, tokenizer) -> Encode:
    return Encode(encoder.to(run.args.device), tokenizer, bf16=run.args.bf16)
