"""The model card: what a model is for, how to use it, how it scores and how it was trained.

The template is `card.md.j2`; what a method is, and its papers, stand in the method's file. All
values from files, flags or names are escaped by `export.text`; no training text is shown.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from eval.scores import AVERAGE, Key, headline, markdown
from export.facts import Facts
from export.text import Markup, escape, plain, rendered, short
from models.encoder import SentenceEncoder
from models.families import without_pooler
from models.heads import Dense
from models.pooling import pooling_named
from training.settings import kinds_of

_TASK_TYPES = {
    "spearman": "semantic-similarity",
    "accuracy": "text-classification",
    "word accuracy": "text-classification",
}  # all other metrics: retrieval
# Settings that the card shows elsewhere, or that follow from the machine or the command.
_ELSEWHERE = {
    "text",
    "start",
    "script",
    "model_name_or_path",
    "method",
    "contents",
    "dev_pairs",
    "packed",
    "do_eval",
}


@dataclass(frozen=True)
class Model:
    """An exported model.

    Attributes:
        name: for the title.
        repo: its hub id; None if it is not pushed.
        encoder: the model.
        folder: as given on the command line; empty if that would reveal more of the machine's
            paths.
    """

    name: str
    repo: str | None
    encoder: SentenceEncoder
    folder: str = ""

    @property
    def layers(self) -> list[Dense]:
        """The linear layers of the kept head."""
        return self.encoder.head.dense_layers() if self.encoder.head is not None else []

    @property
    def dimension(self) -> int:
        """Entries of a sentence vector."""
        return self.layers[-1][0].out_features if self.layers else self.encoder.config.hidden_size

    @property
    def averaged(self) -> tuple[int, ...]:
        """The hidden states whose mean over tokens is the pooled vector; () for other poolings."""
        pooling = pooling_named(self.encoder.pooling)
        return (pooling.layers or (-1,)) if pooling.module == "mean" and not pooling.at_mask else ()

    @property
    def has_pooler(self) -> bool:
        """Whether `AutoModel` would add a randomly initialised pooler."""
        return bool(without_pooler(type(self.encoder.backbone)))

    @property
    def default_prompt(self) -> Markup:
        """What stands before every text without a role, as a Python literal; empty without one."""
        prompt = self.encoder.prompt_of()
        return Markup(repr(prompt)) if prompt else Markup()

    @property
    def address(self) -> str:
        """What the snippets load: the hub id, or else the folder, never mistaken for a hub id."""
        return plain(self.repo or f"./{self.folder or self.name}")


def card(model: Model, facts: Facts) -> str:
    """README.md of an exported folder."""
    verdict, rows = facts.mapping("verdict"), headline(facts.rows)
    dev = str(verdict.get("title") or verdict.get("metric") or "the dev score")
    seen = facts.mapping("seen_test_texts")
    return rendered(
        "card.md.j2",
        model=model,
        facts=facts,
        record=facts.record,
        method=facts.method,
        metadata=_metadata(model, facts).to_yaml(),
        properties=_properties(model),
        dev=dev,
        beside=_beside(facts, facts.own_rows, dev),
        scores=_scores(rows) if rows else "",
        fitted=_named(facts.baseline),
        settings=_settings(facts) if facts.record else "",
        seen={name: count for name, count in seen.items() if isinstance(count, dict)},
    )


def _metadata(model: Model, facts: Facts) -> ModelCardData:
    """The YAML header for the hub; without a licence, because none is known.

    Scores go into `model-index`: the newer `.eval_results/` files are only for the hub's registered
    benchmarks, not for SentEval.
    """
    tags = ["feature-extraction", "sentence-similarity", "transformers"]
    if facts.method:
        tags.append(facts.method.name)
    results = [_result(row) for row in facts.own_rows if row["task"] != AVERAGE]
    return ModelCardData(
        model_name=plain(model.name),
        base_model=facts.base_model,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=tags,
        eval_results=results or None,
    )


def _result(row: Mapping[str, Any]) -> EvalResult:
    task, metric = plain(row["task"]), plain(row["metric"])
    protocol = plain(_protocol(row))
    return EvalResult(
        task_type=_TASK_TYPES.get(metric, "information-retrieval"),
        dataset_type=task.lower().replace(" ", "-"),
        dataset_name=task,
        dataset_split=plain(row["split"]),
        metric_type=f"cosine_{metric}" if metric == "spearman" else metric,
        metric_name=f"{metric} x 100, {protocol}",
        metric_value=round(row["value"], 4),
    )


def _protocol(row: Mapping[str, Any]) -> str:
    """How a figure is formed, with its mode and search if they are not the papers'."""
    words = [row["aggregation"]]
    if row["mode"] != "test":
        words.append(row["mode"])
    if row.get("search", "dense") != "dense":
        words.append(f"search {row['search']}")
    return ", ".join(words)


def _properties(model: Model) -> Markup:
    encoder = model.encoder
    backbone = [str(encoder.config.model_type)]
    if depth := getattr(encoder.config, "num_hidden_layers", None):
        backbone.append(f"{depth} layers")
    count = sum(parameter.numel() for parameter in encoder.parameters())
    backbone.append(f"{count / 1e6:.1f} M parameters")
    pooling = f"`{encoder.pooling}`"
    if model.layers:
        pooling += f" and a head of {len(model.layers)} layers"
    return _table(
        ["property", "value"],
        ["backbone", escape(", ".join(backbone))],
        ["pooling", pooling],
        ["vector", f"{model.dimension} numbers, compared by cosine"],
        ["longest text", f"{encoder.max_length} tokens; the rest is truncated"],
    )


def _beside(facts: Facts, rows: list[dict], dev: str) -> Markup | str:
    """The dev score beside that of the base model, and the averages.

    Without an average, every headline score.
    """
    lines = []
    if facts.dev_scores:
        dev += ", which selected the model"
        lines.append([escape(dev), *(f"{score:.2f}" for score in facts.dev_scores)])
    averages = [row for row in rows if row["task"] == AVERAGE]
    for row in averages or rows:
        key = Key.of(row)
        alike = [other for other in rows if Key.of(other)[1:] == key[1:]]
        name = str(key).replace(AVERAGE, f"mean of {len(alike) - 1} tasks")
        lines.append([escape(name), "not scored", f"{row['value']:.2f}"])
    return _table(["score", "base model", "this model"], *lines) if lines else ""


def _scores(rows: list[dict]) -> Markup:
    lines = []
    for row in rows:
        words = [row["task"], row["split"], row["metric"], _protocol(row)]
        lines.append([*map(escape, words), f"{row['n']:,}", f"{row['value']:.2f}"])
    return _table(["task", "split", "metric", "protocol", "n", "value"], *lines)


def _settings(facts: Facts) -> Markup | str:
    """The settings that differ from the defaults of this version.

    Those that it does not know count as different.
    """
    defaults: dict[str, Any] = {"world_size": 1}
    for kind in kinds_of(str(facts.record.get("script")), facts.method):
        for flag in fields(kind):
            if flag.default is not MISSING:
                defaults[flag.name] = flag.default
            elif flag.default_factory is not MISSING:
                defaults[flag.name] = flag.default_factory()
    changed = {}
    for name, value in facts.mapping("trajectory").items():
        default = defaults.get(name)
        unset = value is None or (value is False and default is None)
        if name in _ELSEWHERE or unset or isinstance(value, dict) or value == default:
            continue
        changed[name] = value
    return _named(changed) if changed else ""


def _named(values: Mapping[str, Any]) -> Markup:
    lines = []
    for name, value in values.items():
        text = ", ".join(map(short, value)) if isinstance(value, list) else short(value)
        lines.append([escape(name), escape(text)])
    return _table(["setting", "value"], *lines)


def _table(*lines: list[str]) -> Markup:
    """A table of cells that are already escaped, the header first."""
    return Markup(markdown(lines))
