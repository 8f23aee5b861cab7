"""The card's section on using the exported model: snippets, which a test runs."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from export.text import fenced, plain
from models.encoder import SentenceEncoder
from models.heads import Dense
from models.word_vectors import WordVectors

_SENTENCES = 'sentences = ["A child plays in the garden.", "A girl is playing outside in the sun.", "Stocks fell."]'
_TOKENS = {  # the token vectors that are averaged, in terms of a transformers output; other poolings take [CLS]
    "avg": "output.last_hidden_state",
    "avg_top2": "(output.hidden_states[-1] + output.hidden_states[-2]) / 2",
    "avg_first_last": "(output.hidden_states[1] + output.hidden_states[-1]) / 2",
    "avg_embedding_last": "(output.hidden_states[0] + output.hidden_states[-1]) / 2",
}
_ONNX = """\
{imports}
from transformers import AutoTokenizer

{sentences}
tokenizer = AutoTokenizer.from_pretrained("{address}")
session = onnxruntime.InferenceSession({file}, providers=["CPUExecutionProvider"])
inputs = tokenizer(sentences, padding=True, truncation=True, return_tensors="np")
given = {{name: inputs[name] for name in ("input_ids", "attention_mask")}}
[embeddings] = session.run(["sentence_embedding"], given)"""
_BACKEND = (
    '`backend="onnx"` of sentence-transformers reads the file too, and pools by itself. It needs optimum-onnx (0.1.0: '
    "with transformers below 4.58), and refuses the entry `model_args` of `sentence_bert_config.json`, by which the "
    "torch backend leaves out a pooler of random weights: delete that entry in a copy for ONNX."
)
_HEAD = """\
weights = load_file({file})
embeddings = torch.nn.functional.linear(embeddings, weights["linear.weight"], weights.get("linear.bias"))
embeddings = torch.nn.{activation}()(embeddings)
"""


@dataclass(frozen=True)
class Model:
    """An exported model.

    Attributes:
        name: for the title.
        repo: its name on the hub, None when it is not pushed.
        encoder: the model.
        onnx: whether the folder has `onnx/model.onnx`.
        place: the folder as it was given, where that shows no more than the command did.
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
    def only_here(self) -> str | None:
        """The part that only this repository computes, in words; None for most models."""
        if isinstance(self.encoder.backbone, WordVectors):
            return "the splitting of a text into words of its table"
        return "the flow behind its pooling (`flow.safetensors`)" if self.has_flow else None

    @property
    def has_flow(self) -> bool:
        """Whether a flow stands behind pooling and layers."""
        return getattr(self.encoder.head, "flow", None) is not None

    @property
    def address(self) -> str:
        """What the snippets load: the name on the hub, else the folder as it was named."""
        return plain(self.repo or self.place or self.name)

    def usage(self) -> str:
        """The section on how to use it."""
        parts = ["## How to use it"]
        if self.only_here:
            parts += [f"Neither sentence-transformers nor transformers has {self.only_here}: they give other vectors."]
        elif self.has_modules:
            parts += ["With sentence-transformers:", fenced(self._sentence_transformers(), "python")]
        else:
            parts += [f"sentence-transformers has no pooling `{self.encoder.pooling}`: use one of the others."]
        if not self.only_here:
            parts += ["With transformers alone:", fenced(self._transformers(), "python")]
        parts += ["In the repository that trained it, from its root:", fenced(self._repository(), "python")]
        if self.onnx:
            parts += [
                "With onnxruntime:",
                fenced(self._onnxruntime(), "python"),
                *([_BACKEND] if self.has_modules else []),
            ]
        if self.encoder.pooling == "mask":
            parts += [
                "The tokenizer puts the model's template around every text. A server that reads the pooling without "
                "the module in front of it (`1_WordWeights`) averages all tokens, and so gives other vectors."
            ]
        if not self.repo:
            parts += [f"`{self.address}` is the folder, seen from where it was written."]
        return "\n\n".join([*parts, "Compare vectors by their cosine."])

    def _onnxruntime(self) -> str:
        imports = "from huggingface_hub import hf_hub_download\n" * bool(self.repo)
        return _ONNX.format(imports=f"import onnxruntime\n{imports}".rstrip(), sentences=_SENTENCES,
                            address=self.address, file=self._file("onnx/model.onnx"))  # fmt: skip

    def _file(self, name: str) -> str:
        return f'hf_hub_download("{self.address}", "{name}")' if self.repo else f'"{self.address}/{name}"'

    def _sentence_transformers(self) -> str:
        return (
            "from sentence_transformers import SentenceTransformer\n\n"
            f"{_SENTENCES}\n"
            f'model = SentenceTransformer("{self.address}")\n'
            "embeddings = model.encode(sentences)\n"
            "similarities = model.similarity(embeddings, embeddings)"
        )

    def _transformers(self) -> str:
        lines = ["import torch"]
        lines += ["from huggingface_hub import hf_hub_download"] * bool(self.layers and self.repo)
        lines += ["from safetensors.torch import load_file"] * bool(self.layers)
        accepted = inspect.signature(type(self.encoder.backbone)).parameters
        bare = ", add_pooling_layer=False" if "add_pooling_layer" in accepted else ""
        lines += [
            "from transformers import AutoModel, AutoTokenizer\n",
            _SENTENCES,
            f'tokenizer = AutoTokenizer.from_pretrained("{self.address}")',
            f'model = AutoModel.from_pretrained("{self.address}"{bare})',
            'inputs = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")',
            "with torch.no_grad():",
            "    output = model(**inputs, output_hidden_states=True)",
            self._pooling(),
        ]
        for i, layer in enumerate(self.layers, start=2):
            file = self._file(f"{i}_Dense/model.safetensors")
            lines.append(_HEAD.format(file=file, activation=layer.activation).rstrip())
        return "\n".join(lines)

    def _pooling(self) -> str:
        if self.encoder.pooling == "last_token":
            return (
                'last = inputs["attention_mask"].sum(1) - 1\n'
                "embeddings = output.last_hidden_state[torch.arange(len(sentences)), last]"
            )
        if self.encoder.pooling == "mask":
            place, ends = self.encoder.place, 'inputs["attention_mask"].sum(1)'
            row = f":, {place}" if place >= 0 else f"torch.arange(len(sentences)), {ends} - {-place}"
            return f"embeddings = output.last_hidden_state[{row}]"
        tokens = _TOKENS.get(self.encoder.pooling)
        if tokens is None:
            return "embeddings = output.last_hidden_state[:, 0]"
        return (
            'mask = inputs["attention_mask"].unsqueeze(-1)\n'
            f"tokens = {tokens}\n"
            "embeddings = (tokens * mask).sum(1) / mask.sum(1)"
        )

    def _repository(self) -> str:
        return (
            f'from embedder import Embedder\n\n{_SENTENCES}\nembeddings = Embedder("{self.address}").encode(sentences)'
        )
