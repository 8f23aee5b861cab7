"""The exported model as the card shows it."""

import inspect
from dataclasses import dataclass

from export.text import Markup, plain, rendered
from models.encoder import SentenceEncoder
from models.heads import Dense
from models.word_vectors import WordVectors


@dataclass(frozen=True)
class Model:
    """An exported model.

    Attributes:
        name: for the title.
        repo: its hub id; None if it is not pushed.
        encoder: the model.
        onnx: whether the folder has `onnx/model.onnx`.
        place: the folder as given on the command line; empty if that would reveal more of the machine's paths.
    """

    name: str
    repo: str | None
    encoder: SentenceEncoder
    onnx: bool = False
    place: str = ""

    @property
    def layers(self) -> list[Dense]:
        """The linear layers of the kept head."""
        return self.encoder.head.dense_layers() if self.encoder.head is not None else []

    @property
    def dimension(self) -> int:
        """Entries of a sentence vector."""
        return self.layers[-1][0].out_features if self.layers else self.encoder.config.hidden_size

    @property
    def has_modules(self) -> bool:
        """Whether sentence-transformers has a module for every part."""
        return self.encoder.has_modules

    @property
    def has_pooler(self) -> bool:
        """Whether `AutoModel` would add a randomly initialised pooler."""
        return "add_pooling_layer" in inspect.signature(type(self.encoder.backbone)).parameters

    @property
    def custom_part(self) -> str | None:
        """The part that only this repository implements, as text; None for most models."""
        if isinstance(self.encoder.backbone, WordVectors):
            return "this model's tokenization into words"
        return "the flow after this model's pooling (`flow.safetensors`)" if self.has_flow else None

    @property
    def has_flow(self) -> bool:
        """Whether a flow follows pooling and layers."""
        return getattr(self.encoder.head, "flow", None) is not None

    @property
    def address(self) -> str:
        """The name that the snippets load: the hub id, or else the folder."""
        return plain(self.repo or self.place or self.name)

    def usage(self) -> Markup:
        """The section on usage."""
        return rendered("usage.md.j2", model=self)
