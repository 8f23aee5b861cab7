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
from models.heads import Dense
from models.loading import without_pooler
from models.pooling import pooling_named
from training.settings import kinds_of

_TASK_TYPES = {
    "spearman": "semantic-similarity",
    "accuracy": "text-classification",
}  # all other metrics: retrieval
_DEV_SCORES = {
    "stsb_spearman": "Spearman's correlation on STS-B dev",
    "dev_spearman": "Spearman's correlation on dev pairs",
    "search_ndcg": "nDCG@10 on dev queries",
}
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
        """The hidden states whose mean over layers and tokens is the pooled vector; () for other poolings."""
        pooling = pooling_named(self.encoder.pooling)
        return (pooling.layers or (-1,)) if pooling.module == "mean" and not pooling.at_mask else ()

    @property
    def has_pooler(self) -> bool:
        """Whether `AutoModel` would add a randomly initialised pooler."""
        return bool(without_pooler(type(self.encoder.backbone)))

    @property
    def has_prompts(self) -> bool:
        """Whether sentence-transformers can put prompts before texts."""
        return any(self.encoder.prompts.values())

    @property
    def address(self) -> str:
        """The name that the snippets load: the hub id, or else the folder, never a name that could be a hub id."""
        return plain(self.repo or f"./{self.folder or self.name}")

    def usage(self) -> Markup:
        """The section on usage."""
        return rendered("usage.md.j2", model=self)


def card(model: Model, facts: Facts) -> str:
    """README.md of an exported folder."""
    verdict, rows = facts.mapping("verdict"), headline(facts.rows)
    dev = _DEV_SCORES.get(str(verdict.get("metric")), "the dev score")
    if verdict.get("apart") is True:  # judged on other examples than selected it
        dev = dev.replace("on dev", "on test")
    return rendered(
        "card.md.j2",
        model=model,
        facts=facts,
        record=facts.record,
        method=facts.method,
        metadata=_metadata(model, facts).to_yaml(),
        properties=_properties(model),
        dev=dev,
        beside=_beside(facts, rows, dev),
        scores=_scores(rows) if rows else "",
        fitted=_named(facts.baseline),
        settings=_settings(facts) if facts.record else "",
        seen={
            name: count
            for name, count in facts.mapping("seen_test_texts").items()
            if isinstance(count, dict)
        },
    )


def _metadata(model: Model, facts: Facts) -> ModelCardData:
    """The YAML header for the hub; without a licence, because none is known.

    Scores go into `model-index`: the newer `.eval_results/` files are only for the hub's registered
    benchmarks, not for SentEval.
    """
    results = []
    for row in headline(facts.rows):
        if row["task"] != AVERAGE:
            task, metric = plain(row["task"]), plain(row["metric"])
            results.append(
                EvalResult(
                    task_type=_TASK_TYPES.get(metric, "information-retrieval"),
                    dataset_type=task.lower().replace(" ", "-"),
                    dataset_name=task,
                    dataset_split=plain(row["split"]),
                    metric_type=f"cosine_{metric}" if metric == "spearman" else metric,
                    metric_name=f"{metric} x 100, {plain(row.get('aggregation', 'aggregation not stated'))}",
                    metric_value=round(row["value"], 4),
                )
            )
    return ModelCardData(
        model_name=plain(model.name),
        base_model=facts.base_model,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=[
            "feature-extraction",
            "sentence-similarity",
            "transformers",
            *([facts.method.name] if facts.method else []),
        ],
        eval_results=results or None,
    )


def _properties(model: Model) -> Markup:
    encoder = model.encoder
    count = sum(parameter.numel() for parameter in encoder.parameters()) / 1e6
    depth = getattr(encoder.config, "num_hidden_layers", None)
    size = [
        str(encoder.config.model_type),
        *([f"{depth} layers"] if depth else []),
        f"{count:.1f} M parameters",
    ]
    head = f" and a head of {len(model.layers)} layers" if model.layers else ""
    rows = {"backbone": escape(", ".join(size)), "pooling": f"`{encoder.pooling}`{head}"}
    rows |= {"vector": f"{model.dimension} numbers, compared by cosine"}
    rows |= {"longest text": f"{encoder.max_length} tokens; the rest is truncated"}
    return _table([["property", "value"], *map(list, rows.items())])


def _beside(facts: Facts, rows: list[dict], dev: str) -> Markup | str:
    """The dev score beside that of the base model, and the averages (without any: every headline score)."""
    body = []
    if facts.dev_scores:
        chosen_by = (
            "" if facts.mapping("verdict").get("apart") is True else ", which selected the model"
        )
        body.append([escape(dev + chosen_by), *(f"{score:.2f}" for score in facts.dev_scores)])
    for row in [row for row in rows if row["task"] == AVERAGE] or rows:
        tasks = sum(Key.of(other)[1:] == Key.of(row)[1:] for other in rows) - 1
        name = str(Key.of(row)).replace(AVERAGE, f"mean of {tasks} tasks")
        body.append([escape(name), "not scored", f"{row['value']:.2f}"])
    return body and _table([["score", "base model", "this model"], *body])


def _scores(rows: list[dict]) -> Markup:
    body = [["task", "split", "metric", "protocol", "n", "value"]]
    for row in rows:
        mode = "" if row["mode"] == "test" else f", {row['mode']}"
        words = [
            row["task"],
            row["split"],
            row["metric"],
            f"{row.get('aggregation', 'not stated')}{mode}",
        ]
        body.append([*map(escape, words), f"{row['n']:,}", f"{row['value']:.2f}"])
    return _table(body)


def _settings(facts: Facts) -> Markup | str:
    """The settings that differ from the defaults of this version; those it does not know count as different."""
    flags = [
        flag
        for kind in kinds_of(str(facts.record.get("script")), facts.method)
        for flag in fields(kind)
    ]
    defaults = {
        flag.name: flag.default_factory() for flag in flags if flag.default_factory is not MISSING
    }
    defaults |= {flag.name: flag.default for flag in flags if flag.default is not MISSING} | {
        "world_size": 1
    }
    changed = {}
    for name, value in facts.mapping("trajectory").items():
        unset = value is None or (value is False and defaults.get(name) is None)
        if (
            name not in _ELSEWHERE
            and not unset
            and not isinstance(value, dict)
            and value != defaults.get(name)
        ):
            changed[name] = value
    return changed and _named(changed)


def _named(values: Mapping[str, Any]) -> Markup:
    body = [["setting", "value"]]
    for name, value in values.items():
        body.append(
            [
                escape(name),
                escape(", ".join(map(short, value)) if isinstance(value, list) else short(value)),
            ]
        )
    return _table(body)


def _table(body: list[list[str]]) -> Markup:
    """A table of cells that are already escaped."""
    return Markup(markdown(body))
