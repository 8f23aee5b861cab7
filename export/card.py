"""The model card: what a reader needs to use a model, to weigh its scores and to train it again.

Everything that comes from files, flags or names goes through `export.text`; no training text is shown.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from transformers import TrainingArguments

from eval.scores import AVERAGE, headline, markdown
from export.facts import Facts
from export.model import Model
from export.mteb_meta import mteb
from export.published import Citation, citations, comparison
from export.text import command_line, escape, fenced, plain, short

_TASK_TYPES = {"spearman": "semantic-similarity", "accuracy": "text-classification"}  # all others are retrieval
# Of TrainingArguments, what a reader compares; all options of the method, the model and the text are shown.
_SHOWN = """per_device_train_batch_size world_size gradient_accumulation_steps num_train_epochs max_steps learning_rate
    lr_scheduler_type warmup_steps optim adam_beta1 adam_beta2 adam_epsilon weight_decay max_grad_norm bf16 fp16 seed
    eval_steps""".split()
_TRIAL = 125 * 64  # examples between two evaluations of SimCSE's script
_START = "Its weights are those that training began from: the training made nothing better and is not in them."
_ELSEWHERE = {"text", "start", "script", "model_name_or_path", "world_size", "dev_pairs", "contents"}


def card(model: Model, facts: Facts) -> str:
    """README.md of an exported folder."""
    citation = citations().get(facts.method)
    sections = [
        f"---\n{_metadata(model, facts).to_yaml()}\n---",
        f"# {escape(model.name)}",
        _summary(model, facts, citation),
        model.usage(),
        mteb(model, facts),
        _scores(facts, citation, model),
        _training(facts),
        _limits(model, facts),
        _citation(citation),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _metadata(model: Model, facts: Facts) -> ModelCardData:
    """The YAML head, which the hub reads; without a licence, because none is known.

    Scores stand there as `model-index`: the newer `.eval_results/` files are for the hub's registered benchmarks, and
    SentEval files are not among them.
    """
    method = plain(facts.method) if facts.method else None
    library = None if model.only_here else "sentence-transformers" if model.has_modules else "transformers"
    libraries = ["transformers"] if library else []
    return ModelCardData(
        model_name=plain(model.name),
        base_model=facts.base_model,
        library_name=library,
        pipeline_tag="sentence-similarity",
        tags=["feature-extraction", "sentence-similarity", *libraries, *([method] if method else [])],
        eval_results=[_result(row) for row in headline(facts.rows) if row["task"] != AVERAGE] or None,
    )


def _result(row: dict) -> EvalResult:
    task, metric = plain(row["task"]), plain(row["metric"])
    return EvalResult(
        task_type=_TASK_TYPES.get(metric, "information-retrieval"),
        dataset_type=task.lower().replace(" ", "-"),
        dataset_name=task,
        dataset_split=plain(row["split"]),
        metric_type=f"cosine_{metric}" if metric == "spearman" else metric,
        metric_name=f"{metric} x 100, {plain(row.get('aggregation', 'aggregation not stated'))}",
        metric_value=round(row["value"], 4),
    )


def _summary(model: Model, facts: Facts, citation: Citation | None) -> str:
    encoder = model.encoder
    count = sum(parameter.numel() for parameter in encoder.parameters()) / 1e6
    text = (
        f"A sentence encoder: a sentence becomes a vector of {model.dimension} numbers, and the cosine of two vectors "
        "says how alike the sentences are."
    )
    if citation:
        text += f" Trained by {citation.name}: {citation.about}"
    elif facts.method:
        text += f" Trained by the method {escape(facts.method)}."
    elif facts.is_start:
        text += f" {_START}"
    if facts.widths and facts.method:
        shown = ", ".join(map(str, facts.widths))
        text += f" Its first {shown} entries were trained to be used alone (Matryoshka, arXiv 2205.13147)"
        text += f": `SentenceTransformer(..., truncate_dim={min(facts.widths)})`." if model.has_modules else "."
    depth = getattr(encoder.config, "num_hidden_layers", None)
    size = [escape(encoder.config.model_type), *([f"{depth} layers"] if depth else []), f"{count:.1f} M parameters"]
    head = f" and a head of {len(model.layers)} layers" if model.layers else ""
    head += " and a flow" if model.has_flow else ""
    rows = [
        ["backbone", ", ".join(size)],
        ["pooling", f"`{encoder.pooling}`{head}"],
        ["longest text", f"{encoder.max_length} tokens; the rest is cut off"],
        ["similarity", "cosine"],
    ]
    return text + "\n\n" + markdown([["property", "value"], *rows])


def _scores(facts: Facts, citation: Citation | None, model: Model) -> str:
    findings = "\n".join(
        f"- {escape(str(found)[:1].upper() + str(found)[1:])}." for found in facts.record.get("findings", [])
    )
    if not facts.rows:
        return "\n\n".join(filter(None, ["## Scores\n\nNone are recorded beside the model.", findings]))
    shown = headline(facts.rows)
    rest = [row for row in facts.rows if not any(row is one for one in shown)]
    parts = [
        "## Scores",
        "Values are x 100; n counts pairs, sentences or queries. Protocol `all` is one correlation over all pairs of a "
        "task, its subsets together; `mean of tasks` is the papers' average, over the tasks above it.",
        _table(shown),
    ]
    if rest:
        parts += ["The same tasks by subset or by another protocol:", _table(rest)]
    parts += [findings, _seeds(facts), comparison(facts, citation, model.encoder.config), _seen(facts)]
    return "\n\n".join(part for part in parts if part)


def _table(rows: list[dict]) -> str:
    body = [["task", "split", "metric", "protocol", "n", "value"]]
    for row in rows:
        mode = "" if row["mode"] == "test" else f", {row['mode']}"
        words = [row["task"], row["split"], row["metric"], f"{row.get('aggregation', 'not stated')}{mode}"]
        body.append([*map(escape, words), f"{row['n']:,}", f"{row['value']:.2f}"])
    return markdown(body)


def _seeds(facts: Facts) -> str:
    seed = facts.settings.get("seed")
    if seed is None:
        return ""
    return f"One run, seed {escape(seed)} (n = 1): how much the scores change with the seed is not known from it."


def _seen(facts: Facts) -> str:
    title = "### Test texts in the training text\n\n"
    if not facts.record.get("seen_test_texts"):
        return title + "Nothing is stated: nobody recorded whether texts of the tests stand in the training text."
    counted = {name: each for name, each in facts.record["seen_test_texts"].items() if isinstance(each, dict)}
    seen = [f"{escape(name)} ({escape(each.get('seen'))} of {escape(each.get('sentences'))})"
            for name, each in counted.items() if each.get("seen")]  # fmt: skip
    if not seen:
        return title + f"No sentence of these tests stands in the training text: {', '.join(map(escape, counted))}."
    return title + f"Sentences of these tests stand in the training text: {', '.join(seen)}."


def _training(facts: Facts) -> str:
    """How to train it again: base model, text, selection, hyper-parameters, command and environment."""
    if not facts.record:
        return "## Training\n\nThe folder this was exported from has no record of a run, so nothing is known of it."
    parts = [
        "## Training",
        facts.is_start and _START,
        _origin(facts),
        _parameters(facts),
        _command(facts),
        _environment(facts),
    ]
    return "\n\n".join(part for part in parts if part)


def _origin(facts: Facts) -> str:
    base = escape(facts.base_model) if facts.base_model else "a local checkpoint"
    base += f", sha256 of its weights {facts.base_hash}" if facts.base_hash else ""
    text, lines = facts.text, [f"- base model: {base}; licence not stated"]
    if text:
        names, rows = ", ".join(escape(short(name)) for name in text.get("files", [])), text.get("rows")
        rows = f"{rows:,}" if isinstance(rows, int) else "an unknown number of"
        unit = "sentences" if facts.settings.get("method") else "lines"  # stage 1 reads running text
        kind = unit if text.get("columns") == 1 else f"rows of {escape(text.get('columns'))} sentences"
        lines.append(
            f"- training text: {names}, {escape(rows)} {kind}; sha256 (of the digests of its files) "
            f"{escape(text.get('sha256'))}; {facts.text_terms}"
        )
    return "\n".join([*lines, f"- selection: {_selection(facts)}"])


def _selection(facts: Facts) -> str:
    best, steps = facts.record.get("best"), escape(facts.record.get("steps", "?"))
    if facts.is_start:
        return f"the model before the first of {steps} steps"
    if not best:
        return f"none; the model after the last of {steps} steps"
    metric = escape(facts.settings.get("metric_for_best_model") or "the dev score")
    value = best.get("value")
    value = f"{value:.2f}" if isinstance(value, float) else escape(value)
    share = (facts.record.get("verdict") or {}).get("start_share")
    mixed = f"; mixed with the start's weights, whose share is {escape(share)}" if share else ""
    return f"step {escape(best.get('step'))} of {steps}, the best by {metric} (x 100) on dev pairs: {value}{mixed}"


def _parameters(facts: Facts) -> str:
    general = {f.name for f in fields(TrainingArguments)} | _ELSEWHERE
    shown = {name: value for name, value in facts.trajectory.items() if name not in general}
    shown |= {name: facts.trajectory.get(name) for name in _SHOWN}
    steps = shown.pop("max_steps")
    if isinstance(steps, int) and steps > 0:  # they win over the epochs
        del shown["num_train_epochs"]
        shown["max_steps"] = steps
    body = [[escape(name), escape(_value(value))] for name, value in shown.items() if value is not None]
    return "### Hyper-parameters\n\n" + markdown([["name", "value"], *body])


def _value(value: Any) -> str:
    return ", ".join(map(short, value)) if isinstance(value, list) else short(value)


def _command(facts: Facts) -> str:
    words = facts.record.get("command")
    if not words:
        return ""
    line = command_line(map(str, words), keep=facts.base_model)
    return f"### Command\n\n{fenced(line, 'sh')}\n\nPaths are shortened to their last part."


def _environment(facts: Facts) -> str:
    versions = [f"{escape(name)} {escape(version)}" for name, version in facts.record.get("versions", {}).items()]
    commit, changed = escape(facts.record.get("commit") or "not recorded"), facts.record.get("changed_files")
    device = escape(facts.record.get("hardware", {}).get("device", "not recorded"))
    lines = [
        f"- versions: {', '.join(versions) or 'not recorded'}",
        f"- commit: {commit}" + (f", and {escape(changed)} changed files" if changed else ""),
        f"- device: {device}; processes: {escape(facts.trajectory.get('world_size', 'not recorded'))}",
    ]
    return "### Environment\n\n" + "\n".join(lines)


def _cautions(facts: Facts) -> list[str]:
    """What a reader must know first: too little training to mean anything, and no score."""
    lines, steps = [], facts.record.get("steps")
    batch = [facts.trajectory.get(name) for name in
             ("per_device_train_batch_size", "gradient_accumulation_steps", "world_size")]  # fmt: skip
    read = math.prod(n if isinstance(n, int) else 1 for n in (steps, *batch))
    if isinstance(steps, int) and read < _TRIAL and not facts.is_start:
        lines.append(f"**A trial, not a model to use:** it was trained for {steps} steps, on {read:,} examples.")
    scored = facts.rows or facts.record.get("best") or facts.record.get("verdict")
    if facts.record and not scored:
        lines.append("**Nothing was scored:** whether it is better than the model it began from is not known.")
    return lines


def _limits(model: Model, facts: Facts) -> str:
    lines = _cautions(facts)
    seen = facts.trajectory.get("max_length")
    if seen and seen != model.encoder.max_length:
        lines.append(f"Training saw at most {escape(seen)} tokens of a sentence; beyond that nothing is known.")
    lines += [
        "A cosine orders pairs; it is no probability, and a threshold has to be chosen on data of the use at hand.",
        "Scores speak for texts like those of the tasks above, and for no other language or domain.",
        "Sentences that differ in a negation, a number or a name can lie close together.",
        "Base model and training text carry the views of those who wrote them; nothing was done to find or remove "
        "them. Test on your own data before anything that concerns people depends on it.",
        "A vector is not anonymous: much of a sentence can be reconstructed from it (Morris et al. 2023, arXiv "
        "2310.06816).",
        "Licence not stated: those of the base model and of the training text may bind this model too.",
    ]
    return "## Limits and risks\n\n" + "\n".join(f"- {line}" for line in lines)


def _citation(citation: Citation | None) -> str:
    if citation is None:
        return ""
    return "## Citation\n\n" + fenced("\n".join(citation.bibtex), "bibtex")
