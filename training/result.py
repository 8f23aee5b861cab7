"""The end of a run: choose between initial and trained weights, compare them, export and score."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from common.arguments import ScoredArguments
from common.errors import BadInput
from common.files import hashes, read_json
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
from training.checkpoint import BEST, copy_best, read_best, replacing_files
from training.folder import read_run
from training.provenance import MODEL_FILES
from training.settings import Settings
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)
_HALVES = 128  # held-out texts that replace the dev task of a run without one
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
    if data_args.dev == "none" and given:
        raise BadInput(f"--dev none --{given[0]}: without a dev score it has no effect; leave one of them out")
    if shares and pooling_named(pooling).keeps_head:
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


def unscored(folder: str, test_tasks: list[str]) -> str:
    """How to score a finished run on tasks that it was not asked for; empty if there are none."""
    before = read_run(Path(folder)).get("settings", {}).get("test_tasks") or []
    known = {*tasks_named([name for name in before if name != "none"], Options())}
    wanted = [name for name in test_tasks if name != "none"]
    new = " ".join(name for name in wanted if not known.issuperset(tasks_named([name], Options())))
    return f"not scored: {new} (python -m eval {folder} --tasks {new})" if new else ""


def save_result(
    trainer: EmbeddingTrainer, settings: Settings, record: dict[str, Any], tokenizer, dev: DevSet | None
) -> tuple[dict[str, Any], list[str]]:
    """Choose and judge the result, and write it into the run's folder.

    Args:
        trainer: after training.
        settings: of the run.
        record: of the run; gets the hashes of the result.
        tokenizer: the encoder's.
        dev: the examples that selected the best model; None for `--dev none`.

    Returns:
        Facts for the record (best step, verdict, dev score by width), and the findings in words.
    """
    folder, facts, findings = Path(trainer.args.output_dir), {}, []
    if dev:
        facts["best"] = read_best(folder, trainer.run_id)
    encoder, facts["verdict"] = _choose(trainer, settings, tokenizer, dev)
    with replacing_files(folder) as temporary:
        if encoder is not None and facts["verdict"]["shipped"] == "start":
            _save_initial(settings, encoder, temporary, tokenizer)
        elif encoder is not None:
            encoder.save(str(temporary), tokenizer)
        elif dev:
            copy_best(folder, temporary)
        else:
            logger.info("no dev task: the last model is the result")
            trainer.model.encoder.save(str(temporary), tokenizer)
        record["result"] = hashes(temporary)
    if facts["verdict"]:
        findings.append(in_words(facts["verdict"]))
    if dev and (widths := settings.model_args.matryoshka_dims):
        facts["dev_by_width"] = dev.scores(_encode(settings, *load_encoder(str(folder))), widths)
        scores = ", ".join(f"{name} {value:.2f}" for name, value in facts["dev_by_width"].items())
        findings.append(f"the whole vector and its prefixes: {scores}")
    return facts, findings


def score_result(settings: Settings, tests: list, texts: Iterable[str]) -> dict[str, dict[str, int]]:
    """Write `scores.json` of the exported model; returns how many test sentences the training text contains."""
    folder, data_dir = Path(settings.args.output_dir), settings.data_args.data_dir
    encode = _encode(settings, *load_encoder(str(folder)))
    results = score_all(encode, tests, data_dir)
    seen = count_seen(texts, tests, data_dir) if tests else {}
    rows = with_share_seen(rows_of(results, settings.model_args.method, folder.name, **encode.settings), seen)
    write_scores(folder / "scores.json", results, rows)
    if rows:
        show(tables({folder.name: rows}), folder / "scores.json")
    if message := describe_seen(seen):
        logger.warning(message)
    return seen


def _choose(
    trainer: EmbeddingTrainer, settings: Settings, tokenizer, dev: DevSet | None
) -> tuple[SentenceEncoder | None, dict[str, Any] | None]:
    """The encoder to export, None for the trained one unchanged, and the comparison with the initial model."""
    data_args = settings.data_args
    judge = dev or _halves(trainer, tokenizer)
    if judge is None:
        return None, None
    trained = trainer.model.encoder
    if dev is not None:
        trained, _ = load_encoder(str(Path(settings.args.output_dir) / BEST))
    initial = initial_encoder(settings.values, trained)
    shares = sorted({*data_args.start_shares})
    models = {0.0: trained} | {share: trained.mixed_with(initial, share) for share in shares} | {1.0: initial}
    if dev is not None:
        trainer.model.to("cpu")  # the result comes from best/; a GPU holds one model at a time
    items = {}
    for share, encoder in models.items():
        items[share] = judge.items(_encode(settings, encoder, tokenizer))
        encoder.to("cpu")
    scores = {share: judge.score_of(scored) for share, scored in items.items()} if shares else {0.0: None}
    best = max(scores, key=scores.__getitem__)
    verdict = {"metric": judge.metric, **judge.verdict(items[1.0], items[best]), "shipped": "result"}
    if dev is None:
        texts = [" ".join(pair) for pair in judge.content]
        vectors = [torch.from_numpy(_encode(settings, encoder, tokenizer)(texts)) for encoder in (initial, trained)]
        for name, measure in {"uniformity": uniformity, "mean_cosine": mean_cosine}.items():
            verdict[name] = [float(measure(both)) for both in vectors]
    if shares:
        verdict |= {"start_share": best, "dev_by_start_share": {str(share): score for share, score in scores.items()}}
    if data_args.keep_start and not clears(verdict, data_args.least_gain):
        return initial, verdict | {"shipped": "start", "least_gain": data_args.least_gain}
    return (models[best] if best else None), verdict


def _halves(trainer: EmbeddingTrainer, tokenizer) -> DevSet | None:
    """The held-out texts as a search task; None if too few have two words."""
    text, held = trainer.data_collator.text, trainer.sampler.held[:_HALVES]
    columns = range(text.columns)
    rows = [[tokenizer.decode(text.sentences([row], column, _LONGEST)[0]) for column in columns] for row in held]
    return halves_set(rows)


def initial_encoder(settings: Mapping[str, Any], trained: SentenceEncoder) -> SentenceEncoder:
    """The encoder from which a run with these settings started, without a head; other traits as in `trained`."""
    pooling = settings["pooling"]
    if pooling_named(pooling).keeps_head:
        pooling = "cls_before_pooler"
    backbone = load_backbone(settings["model_name_or_path"])
    if settings["bidirectional"]:
        attend_both_ways(backbone)
    traits = {"place": trained.place, "prompts": trained.prompts, "default_prompt": trained.default_prompt}
    initial = SentenceEncoder(backbone, pooling, None, trained.max_length, trained.packed, **traits)
    initial.normalized = trained.normalizes
    return initial


def _save_initial(settings: Settings, encoder: SentenceEncoder, folder: Path, tokenizer) -> None:
    """Write the initial model: the files of a sentence-transformers folder are copied.

    If the run uses it differently (pooling, head, template, attention, prompts), or a file is a link that leaves the
    folder, it is saved as it was judged.
    """
    source = Path(settings.model_args.model_name_or_path)
    changed = settings.model_args.bidirectional or encoder.place is not None
    unchanged = not changed and _pooled_by(str(source), encoder.prompts) == encoder.pooling
    files = _parts(source) if unchanged else []
    if not files or not all(is_inside(source, file) for file in files):
        encoder.save(str(folder), tokenizer)
        return
    for file in files:
        copy = folder / file.relative_to(source)
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


def _encode(settings: Settings, encoder: SentenceEncoder, tokenizer) -> Encode:
    return Encode(encoder.to(settings.args.device), tokenizer, bf16=settings.args.bf16)
