"""What a method is, and what every objective gets and gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from common.errors import BadInput
from common.packing import Grid
from common.views import IGNORED, Masking, View
from models.collectives import means_over_tokens
from models.contrast import NO_NEGATIVES

if TYPE_CHECKING:
    from models.encoder import SentenceEncoder


class Twin(NamedTuple):
    """Masked copies of some views, as one `Masking` of the method makes them.

    Attributes:
        input_ids: the ids with masks, (number of masked views, B, L).
        labels: the original ids where a token is masked, IGNORED elsewhere, of the same shape.
        uniforms: numbers in [0, 1), of the same shape; None where the masking draws none.
    """

    input_ids: Tensor
    labels: Tensor
    uniforms: Tensor | None = None

    @property
    def count(self) -> Tensor:
        """How many tokens carry a label, ()."""
        return (self.labels != IGNORED).sum()

    def sentences(self, rows: slice) -> Twin:
        """The twins of some sentences."""
        return Twin(*(None if part is None else part[:, rows] for part in self))


@dataclass
class Batch:
    """A batch of the collator; None where the method asks for no such thing.

    Attributes:
        input_ids, attention_mask: (V, B, L).
        twins: the masked copies, by the name of their `Masking`.
        dropout_rates: (V, B, 1), or one for each of the backbone's O dropout operations, (V, B, O); NaN keeps its own.
        positions, kept: changed embeddings, (V, B, L) and (V, B, L, H / 8), see `models.perturb`.
        labels: classes of the rows, (1, B).
        target_input_ids, target_attention_mask: texts that the encoder does not read, (number of views with a target,
            B, L'), see `View.target`.
        words: the distinct tokens of each view's text, IGNORED elsewhere, (V, B, L').
        layouts: of the masks, as `common.packing.Packing` makes them; what is not there is made from the mask.
        start: the first of its sentences in the batch that the layouts know.
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
    layouts: dict[tuple, Grid] = field(default_factory=dict)
    start: int = 0

    def layout(self, group: tuple[int, ...] | str | None = None) -> Grid | None:
        """The layout of the mask of a group of views, or of all; None where it did not come along."""
        count, size = self.attention_mask.shape[:2]
        return self.layouts.get((group or tuple(range(count)), self.start, self.start + size))

    @classmethod
    def of(cls, **inputs: Tensor) -> Batch:
        """From the collator's flat names, in which a twin is `NAME_input_ids`, `NAME_labels`, `NAME_uniforms`."""
        twins = {}
        for name in [name.removesuffix("_labels") for name in inputs if name.endswith("_labels")]:
            twins[name] = Twin(*(inputs.pop(f"{name}_{part}", None) for part in Twin._fields))
        return cls(twins=twins, **inputs)

    def split(self, size: int | None) -> list[Batch]:
        """The same sentences in chunks of at most `size`; None: in one."""
        count = self.input_ids.shape[1]
        return [self._sentences(slice(cut, cut + (size or count))) for cut in range(0, count, size or count)]

    def _sentences(self, rows: slice) -> Batch:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        parts = {name: value[:, rows] for name, value in tensors.items()}
        twins = {name: twin.sentences(rows) for name, twin in self.twins.items()}
        return Batch(twins=twins, layouts=self.layouts, start=self.start + rows.start, **parts)


@dataclass
class Encoded:
    """A batch as the encoder sees it.

    Attributes:
        pooled: sentence vectors of this process, (V, B, H).
        cls: last hidden state of the first token, (V, B, H).
        projected: vectors of all processes behind the projection head, with gradient, (V, N, D); None where no
            objective reads them.
        encoder: what made them, for objectives that show it other tokens.
        projection: the head, None without one.
        own_projected: this process's rows of `projected`, (V, B, D); an objective with `tokens` reads no others.
        chunk_size: sentences that an objective may show to a network of its own at a time; None: all of the batch.
        tokens: last hidden states of all tokens of this process, (V, B, L, H), those of padding without meaning; None
            where no objective reads them.
    """

    pooled: Tensor
    cls: Tensor
    projected: Tensor | None
    encoder: nn.Module
    projection: nn.Module | None
    own_projected: Tensor | None = None
    chunk_size: int | None = None
    tokens: Tensor | None = None


class Term(NamedTuple):
    """One part of the loss: the raw value, which is logged, and its weight in the sum.

    With a `count`, (), the value is a sum over so many tokens of this process; the model makes it the mean over those
    of all processes.
    """

    value: Tensor
    weight: float
    count: Tensor | None = None


def add_up(terms: Iterable[tuple[str, Term]], device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted sum of named terms, and their raw values; the processes agree on all counts at once."""
    terms = list(terms)
    counted = [term for _, term in terms if term.count is not None]
    means = iter(means_over_tokens([term.value for term in counted], [term.count for term in counted]))
    loss, values = torch.zeros((), device=device), {}
    for name, term in terms:
        value = term.value if term.count is None else next(means)
        loss = loss + term.weight * value
        values[name] = value.detach()
    return loss, values


class Objective(nn.Module):
    """A part of the training loss that owns the networks and buffers it needs beside the encoder.

    Attributes:
        reads_projection, reads_tokens: whether it reads these parts of `Encoded`.
        reads_words: whether it reads the words of `Batch`.
        compares: whether it tells a batch's sentences from each other, so that one alone teaches nothing.
        not_compiled: why a step with it cannot be compiled; empty where it can.
    """

    reads_projection = False
    reads_tokens = False
    reads_words = False
    compares = False
    not_compiled = ""

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Named terms of the loss for one batch."""
        raise NotImplementedError

    def check_batch(self, count: int) -> None:
        """BadInput where batches of `count` sentences, of all processes, are too small for the loss."""
        if self.compares and count < 2:
            raise BadInput(NO_NEGATIVES)

    def groups(self, count: int) -> list[tuple[int, ...]]:
        """Which of `count` views it runs through a network by themselves, not all as the encoder does."""
        return []

    def cleaned(self, pooled: Tensor, encoded: Encoded, batch: Batch) -> Tensor:
        """The pooled vectors as the projection is to see them, (V, B, H); as they are, where nothing is said."""
        return pooled

    def tokens(self, batch: Batch) -> Tensor | None:
        """How many tokens of the batch its terms are sums over, (); None where it needs the batch as a whole.

        An objective that gives a number can be computed a few sentences at a time (`models.caching`): its terms have a
        `count`, and look at no other sentence than the token's own.
        """
        return None

    def probe(self, encoded: Encoded, batch: Batch) -> dict[str, Tensor]:
        """What else is worth seeing at an evaluation, without gradient and on this process alone."""
        return {}

    def cast_frozen(self, dtype: torch.dtype) -> None:
        """Cast what never learns; called once, before training under autocast to `dtype`."""

    def after_step(self, encoder: nn.Module, projection: nn.Module | None) -> None:
        """Called once after every optimizer step."""


class Contrast(Objective):
    """A loss of the views' vectors, as they are and, with `widths`, of their first entries alone.

    Args:
        loss: a function of the vectors of each view, (N, D) -> ().
        weight: of the loss.
        term: its name; that of a width is `term_WIDTH`.
        views: how many views are compared; None: all.

    Attributes:
        widths: numbers of first entries. Each adds a term of the same weight, so that these entries can be used alone.

    Source: Matryoshka representation learning (Kusupati et al. 2022, arXiv 2205.13147), equation 1 with all c_m = 1.
    """

    reads_projection = True
    compares = True
    widths: Sequence[int] = ()

    def __init__(
        self, loss: Callable[..., Tensor], weight: float = 1.0, term: str = "contrastive", views: int | None = None
    ) -> None:
        super().__init__()
        self.loss, self.weight, self.term, self.views = loss, weight, term, views

    def vectors(self, encoded: Encoded, batch: Batch) -> Sequence[Tensor]:
        """What is compared, the entries of a vector in the last dimension."""
        return encoded.projected[: self.views].unbind(0)

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        vectors = self.vectors(encoded, batch)
        narrow = {f"{self.term}_{width}": [one[..., :width] for one in vectors] for width in self.widths}
        return {name: Term(self.loss(*each), self.weight) for name, each in {self.term: vectors, **narrow}.items()}


class MethodArguments:
    """Base of the dataclass of a method's flags."""

    _argument_group_name = "method"


class Method:
    """A training method: its flags, what it asks of its data, and its objectives.

    A file of `models/objectives` defines one subclass and ends with `METHOD = TheSubclass()`; the file's name is the
    method's name. Nothing else lists the methods.

    Attributes:
        arguments: a dataclass, each field a flag.
        copies: how many equal views there are; dropout makes them differ.
        labels: trains on labelled pairs (run_sup.py) rather than on text (run_unsup.py).
        columns: sentences of a row that the loss can read: 1, 2 (a sentence and its positive) or 3 (and a hard
            negative).
        one_text: all views show one text, so that rows of several are refused.
        takes_projection: whether a projection head can stand in front of the loss.
        not_adapted: why the encoder cannot be trained by adapters; empty where it can.
    """

    arguments: type
    copies = 2
    labels = False
    columns = 1
    one_text = False
    takes_projection = True
    not_adapted = ""

    @property
    def name(self) -> str:
        """What `--method` calls it."""
        return type(self).__module__.rsplit(".", 1)[-1]

    def views(self, args: Any) -> list[View]:
        """The copies of a sentence."""
        return [View()] * self.copies

    def masking(self, args: Any) -> tuple[Masking, ...]:
        """The masked twins of the views, each under a name of its own; none by default."""
        return ()

    def tokenizer(self, args: Any, tokenizer):
        """What tokenises texts for the encoder, now and once it is saved; the checkpoint's own by default."""
        return tokenizer

    def views_of_rows(self, args: Any, columns: int) -> list[View]:
        """The views of rows of `columns` sentences: the method's own, or every sentence of a row as it is.

        BadInput where the loss does not read so many.
        """
        views = self.views(args)
        changed = self.masking(args) or any(view.edit or view.perturb for view in views)
        most = 1 if self.one_text else len(views) if changed else max(len(views), self.columns)
        if columns > most:
            raise BadInput(f"--columns {columns}: this method reads {most} of a row, with these flags")
        return views if columns <= len(views) else views[:1] * columns

    def build(self, args: Any, encoder: SentenceEncoder, projection: nn.Module | None, source: str) -> list[Objective]:
        """The objectives, with the networks, frozen copies and queues they own.

        They are built for an encoder, its projection head, if there is one, and the checkpoint that both came from.
        BadInput where the checkpoint or the flags do not fit the method.
        """
        raise NotImplementedError
