"""The model card: what a reader needs to use a model, to weigh its scores and to make it again.

Whatever comes from files, flags or names goes through `export.text`; no training text is shown.
"""

from __future__ import annotations

from eval.scores import headline, markdown
from export.citations import Citation, citations
from export.facts import Facts
from export.metadata import metadata
from export.model import Model
from export.published import comparison
from export.text import escape, fenced
from export.training import training


def card(model: Model, facts: Facts) -> str:
    """README.md of an exported folder."""
    citation = citations().get(facts.method)
    sections = [
        f"---\n{metadata(model, facts).to_yaml()}\n---",
        f"# {escape(model.name)}",
        _summary(model, facts, citation),
        model.usage(),
        _scores(facts, citation, model),
        training(facts),
        _limits(model, facts),
        _citation(citation),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


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
    if not facts.rows:
        return "## Scores\n\nNone are recorded beside the model."
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
    parts += [_seeds(facts), comparison(facts, citation, model.encoder.config), _seen(facts)]
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


def _limits(model: Model, facts: Facts) -> str:
    lines = []
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
