"""Write the encoder as an ONNX file and check it; needs packages from requirements-extra.txt."""

import logging
import warnings
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from common.errors import BadInput
from models.encoder import SentenceEncoder, load_encoder
from models.loading import load_backbone

ONNX_FILE = Path("onnx") / "model.onnx"
INPUTS, OUTPUT = ("input_ids", "attention_mask"), "sentence_embedding"
TOKENS = "last_hidden_state"  # sentence-transformers' ONNX backend pools these itself
BOUND = 1e-4
_LONGEST = 8192  # tokens to check with; word vectors have no limit


class _Embed(nn.Module):
    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        output = self.encoder(input_ids, attention_mask, with_tokens=True)
        return self.encoder.apply_head(output.pooled), output.tokens


def write_onnx(folder: Path) -> None:
    """Write `onnx/model.onnx` into a saved encoder's folder.

    Inputs are ids and mask, int64 (B, L); outputs are sentence vectors, float32 (B, D), and token vectors, (B, L, H).

    Raises:
        BadInput: onnxruntime's vectors differ by more than 1e-4 of the largest value.
    """
    saved, tokenizer = load_encoder(str(folder))
    shortest = tokenizer.num_special_tokens_to_add() + 1
    # Without packing: ONNX has no operator for its attention.
    encoder = SentenceEncoder(
        load_backbone(str(folder)), saved.pooling, saved.head, saved.max_length, place=saved.place
    )
    module, target = _Embed(encoder).eval(), folder / ONNX_FILE
    target.parent.mkdir()
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with _quiet():
        program = torch.onnx.export(
            module,
            _example(2, shortest + 4, encoder.config.vocab_size),
            input_names=list(INPUTS),
            output_names=[OUTPUT, TOKENS],
            dynamic_shapes=dict.fromkeys(INPUTS, axes),
            dynamo=True,
            verbose=False,
        )
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # source lines, with paths of this machine
    program.save(target, external_data=False)  # a single file; its limit is 2 GB (500 M parameters)
    _check(module, target, encoder, shortest)


@contextmanager
def _quiet():
    """Silence the converter's messages about every node; its result is checked."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _example(rows: int, length: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    ids = torch.arange(rows * length).view(rows, length) * 31 % vocabulary
    mask = (torch.arange(length) < torch.arange(length, length - rows, -1).clamp(min=1)[:, None]).long()
    return ids, mask


@torch.no_grad()
def _check(module: nn.Module, file: Path, encoder: SentenceEncoder, shortest: int) -> None:
    import onnxruntime

    longest = min(encoder.max_length, _LONGEST)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for rows, length in ((1, shortest), (3, min(shortest + 13, longest)), (2, longest)):
        inputs = _example(rows, length, encoder.config.vocab_size)
        named = {name: tensor.numpy() for name, tensor in zip(INPUTS, inputs, strict=True)}
        outputs = session.run([OUTPUT, TOKENS], named)
        for output, expected in zip(map(torch.from_numpy, outputs), module(*inputs), strict=True):
            difference = (output - expected).abs().max() / expected.abs().max().clamp(min=1)
            if not difference <= BOUND:
                worst = f"the vectors of {rows} texts of {length} tokens differ by {float(difference):.1e}"
                raise BadInput(f"--onnx: {worst} in onnxruntime")
