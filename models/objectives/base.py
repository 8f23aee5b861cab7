"""The interface of methods and objectives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from common.errors import BadInput
from data.views import IGNORED, Masking, View
from models.collectives import means_over_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from models.encoder import SentenceEncoder

NO_NEGATIVES = (
    "a batch of one sentence has no negatives: --per_device_train_batch_size must be at least 2 "
    "(--gradient_accumulation_steps adds no negatives; --chunk_size makes a larger batch fit)"
)


class Checkpoint(NamedTuple):
    """The model that training starts from.

    Attributes:
        path: its folder or hub id.
        model: the encoder's backbone or, if the method `reads_output`, the masked language model
            around it.
    """

    path: str
    model: PreTrainedModel


class Twin(NamedTuple):
    """Masked copies of some views, made by one `Masking` of the method.

    Attributes:
        input_ids: the ids with masks, (number of masked views, B, L).
        labels: the original ids where a token is masked, IGNORED elsewhere, same shape.
    """

    input_ids: Tensor
    labels: Tensor

    @property
    def count(self) -> Tensor:
        """The number of labelled tokens, ()."""
        return (self.labels != IGNORED).sum()

    def sentences(self, rows: slice) -> Twin:
        """The twins of some sentences."""
        return Twin(self.input_ids[:, rows], self.labels[:, rows])


@dataclass
class Batch:
    """A batch from the collator; parts that the method does not request are None.

    Attributes:
        input_ids, attention_mask: (V, B, L).
        twins: the masked twins, by the name of their `Masking`.
        dropout_rates: (V, B, 1), or one per dropout operation of the backbone, (V, B, O); NaN keeps
            its own rate.
        positions, kept: perturbed embeddings, (V, B, L) and (V, B, L, H / 8), see `models.perturb`.
        labels: classes of the rows, (1, B).
        target_input_ids, target_attention_mask: texts that the encoder does not read, (number of
            views with a target, B, L'), see `View.target`.
        words: the distinct tokens of each view's text, IGNORED elsewhere, (V, B, L').
        seed: for an objective's own draws; the same in all processes.
    """

    input_ids: Tensor
    attention_mask: Tensor
    twins: dict[str, Twin] = field(default_factory=dict)
    dropout_rates: Tensor | None = None
    positions: Tensor | None = None
    kept: Tensor | None = None
    labels: Tensor | None = None
    target_input_ids: Tensor | None = None
    target_attention_mask: Tensor | None = None
    words: Tensor | None = None
    seed: int = 0

    @classmethod
    def of(cls, **inputs: Any) -> Batch:
        """Build from the collator's flat names; a twin is `NAME_input_ids` and `NAME_labels`."""
        twins = {}
        for name in [name.removesuffix("_labels") for name in inputs if name.endswith("_labels")]:
            twins[name] = Twin(inputs.pop(f"{name}_input_ids"), inputs.pop(f"{name}_labels"))
        return cls(twins=twins, **inputs)

    def split(self, size: int | None) -> list[Batch]:
        """Split into chunks of at most `size` sentences; None: one chunk."""
        count = self.input_ids.shape[1]
        return [
            self._sentences(slice(cut, cut + (size or count)))
            for cut in range(0, count, size or count)
        ]

    def _sentences(self, rows: slice) -> Batch:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        parts = {name: value[:, rows] for name, value in tensors.items()}
        twins = {name: twin.sentences(rows) for name, twin in self.twins.items()}
        return Batch(twins=twins, seed=self.seed, **parts)


@dataclass
class Encoded:
    """The encoder's output for a batch.

    Attributes:
        pooled: sentence vectors of this process, (V, B, H).
        cls: last hidden state of the first token, (V, B, H); in a chunk too of the whole batch.
        projected: vectors of all processes after the projection head, with gradient, (V, N, D); no
            attribute if no objective reads them.
        encoder: the encoder, for objectives that run it on other tokens.
        projection: the projection head, or None.
        local_projected: this process's rows of `projected`, (V, B, D); an objective with `tokens`
            reads only these.
        chunk_size: sentences that an objective may run through its own network at a time; None: the
            whole batch.
        tokens: last hidden states of all tokens of this process, (V, B, L, H), meaningless for
            padding; None if no objective reads them.
        rows: the sentences of this chunk among those of `cls`; without chunks all.
    """

    pooled: Tensor
    cls: Tensor
    projected: Tensor = field(init=False, repr=False)  # `EncoderForTraining.project` sets it
    encoder: SentenceEncoder
    projection: nn.Module | None
    local_projected: Tensor | None = None
    chunk_size: int | None = None
    tokens: Tensor | None = None
    rows: slice = field(default_factory=lambda: slice(None))


def needed(part: Tensor | None) -> Tensor:
    """A part of `Batch` or `Encoded` that is there because the method requests it."""
    if part is None:
        raise TypeError("this part of the batch is read, but the method does not request it")
    return part


@dataclass(frozen=True)
class Term:
    """One part of the loss: the raw value, which is logged, and its weight in the sum.

    With a `count`, (), the value is a sum over that many tokens of this process; the model turns it
    into the mean over the tokens of all processes.
    """

    value: Tensor
    weight: float
    count: Tensor | None = None


def add_up(
    terms: Iterable[tuple[str, Term]], device: torch.device
) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted sum of named terms, and their raw values; one all-reduce for all counts."""
    terms = list(terms)
    sums = [term.value for _, term in terms if term.count is not None]
    counts = [term.count for _, term in terms if term.count is not None]
    means = iter(means_over_tokens(sums, counts))
    loss, values = torch.zeros((), device=device), {}
    for name, term in terms:
        value = term.value if term.count is None else next(means)
        loss = loss + term.weight * value
        values[name] = value.detach()
    return loss, values


class Objective(nn.Module):
    """A part of the training loss that owns the networks and buffers it needs besides the encoder.

    Attributes:
        reads_projection, reads_tokens: whether it reads these parts of `Encoded`.
        reads_words: whether it reads the words of `Batch`.
        compares: whether it contrasts the sentences of a batch, so that a single one teaches
            nothing.
        not_replayed: why a CUDA graph of a step with it would repeat old numbers; empty if it is
            right.
    """

    reads_projection = False
    reads_tokens = False
    reads_words = False
    compares = False
    not_replayed = ""

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Return the named terms of the loss for one batch."""
        raise NotImplementedError

    def check_batch(self, count: int) -> None:
        """Raise BadInput if `count` sentences, over all processes, are too few for the loss."""
        if self.compares and count < 2:
            raise BadInput(NO_NEGATIVES)

    def cleaned(self, pooled: Tensor, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the pooled vectors for the projection, (V, B, H); unchanged by default."""
        return pooled

    def tokens(self, batch: Batch) -> Tensor | None:
        """The number of tokens that its terms sum over, (); None if it needs the whole batch.

        An objective that returns a number can be computed a few sentences at a time
        (`models.fast.chunking`): its terms have a `count`, and a token's loss depends on its own
        sentence and on `Encoded.cls` only.
        """
        return None

    def probe(self, encoded: Encoded, batch: Batch) -> dict[str, Tensor]:
        """Diagnostics to log at an evaluation, without gradient and on this process alone."""
        return {}

    def after_step(self, encoder: nn.Module, projection: nn.Module | None) -> None:
        """Called once after every optimizer step."""


class Contrast(Objective):
    """A loss of the views' vectors.

    Args:
        loss: a function of the vectors of each view, (N, D) -> ().
        weight: weight of the loss.
        term: name of the term.
        views: how many views are compared; None: all.
    """

    reads_projection = True
    compares = True

    def __init__(
        self,
        loss: Callable[..., Tensor],
        weight: float = 1.0,
        term: str = "contrastive",
        views: int | None = None,
    ) -> None:
        super().__init__()
        self.loss, self.weight, self.term, self.views = loss, weight, term, views

    def vectors(self, encoded: Encoded, batch: Batch) -> Sequence[Tensor]:
        """The vectors to compare."""
        return encoded.projected[: self.views].unbind(0)

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        return {self.term: Term(self.loss(*self.vectors(encoded, batch)), self.weight)}


@dataclass
class MethodArguments:
    """Base of the dataclass of a method's flags."""


class Method:
    """A training method: its flags, its requirements on the data, and its objectives.

    A file in `models/objectives` defines one subclass and ends with `METHOD = TheSubclass(...)`;
    the file's name is the method's name. There is no other list of methods.

    Args:
        citations: BibTeX entries of its papers, for the card of a trained model.
        published: its published scores: ids of records in eval/compare/published.yaml, or records
            of that form, whose `source` may be the words themselves.

    Attributes:
        arguments: a dataclass; each field is a flag. By default there is none.
        copies: number of equal views, which differ by dropout.
        labels: trains on labelled pairs (run_sup.py), not on text (run_unsup.py).
        columns: sentences per row that the loss can read: 1, 2 (a sentence and its positive) or 3
            (and a hard negative).
        one_text: all views show the same text, so rows of several sentences are refused.
    """

    arguments: type = MethodArguments
    copies = 2
    labels = False
    columns = 1
    one_text = False

    def __init__(self, *citations: str, published: Sequence[str | Mapping[str, Any]] = ()) -> None:
        self.citations, self.published = citations, published

    @property
    def name(self) -> str:
        """The value of `--method`."""
        return type(self).__module__.rsplit(".", 1)[-1]

    @property
    def about(self) -> str:
        """What it is, on a model card and in docs/methods.md: its file's first paragraph."""
        text = sys.modules[type(self).__module__].__doc__ or self.name
        return " ".join(text.partition("\n\n")[0].split())

    @property
    def title(self) -> str:
        """Its name in words: what stands before the colon or the citation of `about`."""
        return self.about.split(":")[0].split(" (")[0]

    def views(self, args: Any) -> list[View]:
        """The copies of a sentence."""
        return [View()] * self.copies

    def masking(self, args: Any) -> tuple[Masking, ...]:
        """The masked twins of the views, each with its own name; none by default."""
        return ()

    def tokenizer(self, args: Any, tokenizer):
        """The tokenizer for training and for the saved model; the checkpoint's by default."""
        return tokenizer

    def most_columns(self, args: Any) -> int:
        """Sentences per row that the loss can read; changed views exclude hard negatives."""
        views = self.views(args)
        changed = self.masking(args) or any(view.edit or view.perturb for view in views)
        return 1 if self.one_text else len(views) if changed else max(len(views), self.columns)

    def views_of_rows(self, args: Any, columns: int) -> list[View]:
        """The views for rows of `columns` sentences: the method's, or every sentence unchanged.

        BadInput if the loss reads fewer.
        """
        views, most = self.views(args), self.most_columns(args)
        if columns > most:
            raise BadInput(
                f"{columns} texts per row (--columns, --text_column): with these flags, --method "
                f"{self.name} reads at most {most}"
            )
        return views if columns <= len(views) else views[:1] * columns

    def reads_output(self, args: Any) -> bool:
        """Whether `build` copies the output head of the checkpoint's masked language model."""
        return False

    def build(
        self, args: Any, encoder: SentenceEncoder, projection: nn.Module | None, source: Checkpoint
    ) -> list[Objective]:
        """Build the objectives with the networks, frozen copies and queues they own.

        BadInput if the checkpoint or the flags do not fit the method.
        """
        raise NotImplementedError
