"""The model card: how to use a model, judge its scores and reproduce it.

The template is `card.md.j2`; what a method is, and its papers, stand in the method's file. All values from files, flags
or names are escaped by `export.text`; no training text is shown.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from transformers import TrainingArguments

from eval.scores import AVERAGE, Key, headline, markdown
from export.facts import Facts
from export.text import Markup, command_line, escape, plain, rendered, short
from models.encoder import SentenceEncoder
from models.heads import Dense
from models.loading import without_pooler
from models.pooling import pooling_named
from models.word_vectors import WordVectors
from training.methods import load_method, method_names
from training.settings import kinds_of

_TASK_TYPES = {"spearman": "semantic-similarity", "accuracy": "text-classification"}  # all other metrics: retrieval
# The TrainingArguments that may be shown, among the options of the method, the model and the text.
_SHOWN = """per_device_train_batch_size world_size gradient_accumulation_steps num_train_epochs max_steps learning_rate
    lr_scheduler_type warmup_steps optim adam_beta1 adam_beta2 adam_epsilon weight_decay max_grad_norm bf16 fp16 seed
    eval_steps""".split()
_ELSEWHERE = {"text", "start", "script", "model_name_or_path", "world_size", "dev_pairs", "contents", "packed"}


@dataclass(frozen=True)
class Model:
    """An exported model.

    Attributes:
        name: for the title.
        repo: its hub id; None if it is not pushed.
        encoder: the model.
        onnx: whether the folder has `onnx/model.onnx`.
        folder: as given on the command line; empty if that would reveal more of the machine's paths.
    """

    name: str
    repo: str | None
    encoder: SentenceEncoder
    onnx: bool = False
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
    def custom_part(self) -> str | None:
        """The part that only this repository implements, as text; None for most models."""
        if isinstance(self.encoder.backbone, WordVectors):
            return "this model's tokenization into words"
        return "the flow after this model's pooling (`flow.safetensors`)" if self.encoder.flow is not None else None

    @property
    def address(self) -> str:
        """The name that the snippets load: the hub id, or else the folder, never a name that could be a hub id."""
        return plain(self.repo or f"./{self.folder or self.name}")

    def usage(self) -> Markup:
        """The section on usage."""
        return rendered("usage.md.j2", model=self)


def card(model: Model, facts: Facts) -> str:
    """README.md of an exported folder."""
    method, shown = None if facts.without else facts.known_method, headline(facts.rows)
    rest = [row for row in facts.rows if not any(row is other for other in shown)]
    return rendered(
        "card.md.j2",
        model=model,
        facts=facts,
        method=method,
        metadata=_metadata(model, facts).to_yaml(),
        properties=_properties(model),
        beside=_beside(facts, shown),
        shown=_scores(shown),
        rest=rest and _scores(rest),
        seen={name: count for name, count in facts.counted.items() if count.get("seen")},
        fitted=_named(facts.baseline),
        parameters=_parameters(facts) if facts.record else "",
        command=command_line(map(str, facts.record.get("command", [])), keep=facts.base_model),
    )


def _metadata(model: Model, facts: Facts) -> ModelCardData:
    """The YAML header for the hub; without a licence, because none is known.

    Scores go into `model-index`: the newer `.eval_results/` files are only for the hub's registered benchmarks, not for
    SentEval.
    """
    method = plain(facts.method) if facts.method else None
    library = None if model.custom_part else "sentence-transformers"
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


def _table(body: list[list[str]]) -> Markup:
    """A table of cells that are already escaped."""
    return Markup(markdown(body))


def _properties(model: Model) -> Markup:
    encoder = model.encoder
    count = sum(parameter.numel() for parameter in encoder.parameters()) / 1e6
    depth = getattr(encoder.config, "num_hidden_layers", None)
    size = [escape(encoder.config.model_type), *([f"{depth} layers"] if depth else []), f"{count:.1f} M parameters"]
    head = f" and a head of {len(model.layers)} layers" if model.layers else ""
    head += " and a flow" if encoder.flow is not None else ""
    values = {"property": "value", "backbone": ", ".join(size), "pooling": f"`{encoder.pooling}`{head}"}
    values |= {"longest text": f"{encoder.max_length} tokens; the rest is truncated", "similarity": "cosine"}
    return _table([list(line) for line in values.items()])


def _beside(facts: Facts, rows: list[dict]) -> Markup | str:
    """The dev score and the averages (without any: every headline score) beside those of the base model."""
    body = []
    if facts.dev_scores:
        apart = facts.verdict.get("apart") is True  # judged on other examples than selected it
        name = facts.dev_score.replace("on dev", "on test") if apart else f"{facts.dev_score}, which selected the model"
        body.append([escape(name), *(f"{score:.2f}" for score in facts.dev_scores)])
    base = {(Key.of(row), row["n"]): row["value"] for row in headline(facts.base_rows)}
    for row in [row for row in rows if row["task"] == AVERAGE] or rows:
        tasks = sum(Key.of(other)[1:] == Key.of(row)[1:] for other in rows) - 1
        name = str(Key.of(row)).replace(AVERAGE, f"mean of {tasks} tasks")
        other = base.get((Key.of(row), row["n"]))
        body.append([escape(name), "not scored" if other is None else f"{other:.2f}", f"{row['value']:.2f}"])
    return body and _table([["", "base model", "this model"], *body])


def _scores(rows: list[dict]) -> Markup:
    body = [["task", "split", "metric", "protocol", "n", "value"]]
    for row in rows:
        mode = "" if row["mode"] == "test" else f", {row['mode']}"
        words = [row["task"], row["split"], row["metric"], f"{row.get('aggregation', 'not stated')}{mode}"]
        body.append([*map(escape, words), f"{row['n']:,}", f"{row['value']:.2f}"])
    return _table(body)


def _parameters(facts: Facts) -> Markup | str:
    """The settings that differ from the defaults of this version; those it does not know count as different."""
    name, script = facts.settings.get("method"), str(facts.record.get("script"))
    kinds = kinds_of(script, load_method(name) if name in method_names() else None)
    flags = [flag for kind in kinds for flag in fields(kind)]
    defaults = {flag.name: flag.default_factory() for flag in flags if flag.default_factory is not MISSING}
    defaults |= {flag.name: flag.default for flag in flags if flag.default is not MISSING} | {"world_size": 1}
    general = {f.name for f in fields(TrainingArguments)} | _ELSEWHERE
    shown = {name: value for name, value in facts.trajectory.items() if name not in general}
    shown |= {name: facts.trajectory.get(name) for name in _SHOWN}
    if isinstance(shown["max_steps"], int) and shown["max_steps"] > 0:  # overrides the epochs
        del shown["num_train_epochs"]
    changed = {name: value for name, value in shown.items() if value not in (None, defaults.get(name))}
    return changed and _named(changed)


def _named(values: Mapping[str, Any]) -> Markup:
    body = [["name", "value"]]
    for name, value in values.items():
        body.append([escape(name), escape(", ".join(map(short, value)) if isinstance(value, list) else short(value))])
    return _table(body)
