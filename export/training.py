"""The card's section on how a model was trained: enough to do it again, and no path, name or secret of a machine."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from transformers import TrainingArguments

from eval.scores import markdown
from export.facts import Facts
from export.text import command_line, escape, fenced, short

# Of TrainingArguments, what a reader compares; a method's own options and those of model and text are all shown.
_SHOWN = """per_device_train_batch_size world_size gradient_accumulation_steps num_train_epochs max_steps learning_rate
    lr_scheduler_type warmup_steps optim adam_beta1 adam_beta2 adam_epsilon weight_decay max_grad_norm bf16 fp16 seed
    eval_steps""".split()
_ELSEWHERE = {"text", "start", "script", "model_name_or_path", "world_size", "dev_pairs", "contents"}


def training(facts: Facts) -> str:
    """Base model, text, selection, hyper-parameters, command and environment."""
    if not facts.record:
        return "## Training\n\nThe folder this was exported from has no record of a run, so nothing is known of it."
    parts = ["## Training", _origin(facts), _parameters(facts), _command(facts), _environment(facts)]
    return "\n\n".join(part for part in parts if part)


def _origin(facts: Facts) -> str:
    base = escape(facts.base_model) if facts.base_model else "a local checkpoint"
    base += f", sha256 of its weights {facts.base_hash}" if facts.base_hash else ""
    text, lines = facts.text, [f"- base model: {base}; licence not stated"]
    if text:
        names, rows = ", ".join(escape(short(name)) for name in text.get("files", [])), text.get("rows")
        rows = f"{rows:,}" if isinstance(rows, int) else "an unknown number of"
        unit = "sentences" if facts.method else "lines"  # stage 1 reads running text
        kind = unit if text.get("columns") == 1 else f"rows of {escape(text.get('columns'))} sentences"
        lines.append(
            f"- training text: {names}, {escape(rows)} {kind}; sha256 (of the digests of its files) "
            f"{escape(text.get('sha256'))}; {facts.text_terms}"
        )
    return "\n".join([*lines, f"- selection: {_selection(facts)}"])


def _selection(facts: Facts) -> str:
    best, steps = facts.record.get("best"), escape(facts.record.get("steps", "?"))
    if not best:
        return f"none; the model after the last of {steps} steps"
    metric = escape(facts.settings.get("metric_for_best_model") or "the dev score")
    value = best.get("value")
    value = f"{value:.2f}" if isinstance(value, float) else escape(value)
    return f"step {escape(best.get('step'))} of {steps}, the best by {metric} (x 100) on dev pairs: {value}"


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
