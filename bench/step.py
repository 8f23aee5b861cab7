"""A training step, forward and backward: ours against the published one and sentence-transformers'.

Time is measured by turns in one process, peak memory by the kernel in a process of each side.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import Tensor, nn
from transformers import BertForMaskedLM
from transformers.masking_utils import create_bidirectional_mask

from bench.cases import MODELS, Case, Materials
from bench.timing import alternate, apart
from common.flags import positive
from common.memory import peak_mib
from models.heads import projection_named

WEIGHT, TEMPERATURE, HEAD_LAYERS = 1e-5, 0.05, 2  # as in configs/infocse-bert-base.yaml
PRECISIONS = {"fp32": "float32", "bf16": "bf16"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = "size; the weights are random"
    parser.add_argument("--model", choices=MODELS, default="bert-base", help=size)
    precision = "bf16: autocast on both sides"
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help=precision)
    batch = "sentences per step, with two views each"
    parser.add_argument("--runs", type=positive, default=1, help="repetitions; shown are medians")
    parser.add_argument("--batch", type=positive, default=64, help=batch)
    parser.add_argument("--length", type=positive, default=32, help="maximum tokens per sentence")


def rows(args: argparse.Namespace) -> list[dict]:
    """InfoCSE's step against the plain one, and SimCSE's against sentence-transformers."""
    with TemporaryDirectory() as folder:
        materials = apart(made, Path(folder), args)
        plain, ours = (apart(infocse_peak, side, materials, args) for side in (plain_infocse, mine))
        memory = {
            "memory_ratio": round(plain / ours, 2),
            "plain_mib": round(plain),
            "ours_mib": round(ours),
        }
        return [apart(infocse, materials, args) | memory, apart(simcse, materials, args)]


def made(folder: Path, args: argparse.Namespace) -> Materials:
    """The model, the text, and a batch of InfoCSE for every run and the warm-up."""
    count = args.runs + 1
    materials = Materials(
        folder, MODELS[args.model], args.batch, args.length, rows=count * args.batch
    )
    _, collator = materials.parts(Case("infocse"))
    batches = []
    for start in range(0, count * args.batch, args.batch):
        batches.append(collator([(0, start + row, 0) for row in range(args.batch)]))
    torch.save(batches, folder / "batches")
    return materials


class PlainInfoCSE(nn.Module):
    """InfoCSE's step as in the authors' code: contrastive loss plus weighted auxiliary loss.

    Everything is padded. The frozen copy is a masked language model with the lower layers, and its
    unused head runs on every position. The auxiliary layers and their output matrix also run on
    every position; only the loss skips unmasked ones. It is not slower than necessary: attention is
    `scaled_dot_product_attention`, and both views go through the encoder together. The cost equals
    that of the published code with the same library.

    Args:
        lm: becomes the frozen copy, without the layers above the one that the auxiliary layers
            read.
        weight: lambda.
    """

    def __init__(self, lm: BertForMaskedLM, weight: float = WEIGHT) -> None:
        super().__init__()
        self.encoder, self.output = copy.deepcopy(lm.bert), copy.deepcopy(lm.cls)
        layers, config = lm.bert.encoder.layer, lm.config
        self.c_head = copy.deepcopy(layers[-HEAD_LAYERS:])
        self.projection = projection_named(
            "batch_norm", config.hidden_size, config.initializer_range
        )
        self.weight = weight
        lm.bert.encoder.layer = layers[: config.num_hidden_layers // 2]
        self.frozen = lm.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> PlainInfoCSE:
        super().train(mode)
        self.frozen.eval()  # as with --mlm_eval in the published script
        return self

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_input_ids: Tensor,
        masked_labels: Tensor,
        **others: Any,
    ) -> Tensor:
        """The loss of two views and their masked twins, (2, B, L) each."""
        mask = attention_mask.flatten(0, 1)
        cls = self.encoder(input_ids.flatten(0, 1), mask).last_hidden_state[:, 0]
        auxiliary_loss = self._auxiliary(cls, masked_input_ids, mask, masked_labels)
        return self._contrastive(cls) + self.weight * auxiliary_loss

    def _contrastive(self, cls: Tensor) -> Tensor:
        with torch.autocast(cls.device.type, enabled=False):
            first, second = F.normalize(self.projection(cls.float()), dim=-1).chunk(2)
            targets = torch.arange(len(first), device=cls.device)
            return F.cross_entropy(first @ second.T / TEMPERATURE, targets)

    def _auxiliary(self, cls: Tensor, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            seen = self.frozen(ids.flatten(0, 1), mask, output_hidden_states=True)
        states = torch.cat([cls.unsqueeze(1), seen.hidden_states[-1][:, 1:]], dim=1)
        settings = self.frozen.config
        mask = create_bidirectional_mask(settings, inputs_embeds=states, attention_mask=mask)
        for layer in self.c_head:
            states = layer(states, mask)
        logits = self.output(states)  # (2 B, L, vocabulary)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def plain_infocse(materials: Materials, args: argparse.Namespace) -> nn.Module:
    folder = materials.folder / "bert"
    return PlainInfoCSE(BertForMaskedLM.from_pretrained(folder, trust_remote_code=False))


def mine(
    materials: Materials, args: argparse.Namespace, method: str = "infocse", **flags: object
) -> nn.Module:
    """A method's model as run_unsup.py trains it."""
    case = Case(method, precision=PRECISIONS[args.precision])
    return materials.parts(case, **flags)[0].train()


def infocse_peak(side: Callable, materials: Materials, args: argparse.Namespace) -> float:
    """Peak resident memory, in MiB, of building a side's model and taking two steps of InfoCSE."""
    model = side(materials, args)
    for inputs in torch.load(materials.folder / "batches")[-2:]:
        take_step(model, inputs, args.precision)
    return peak_mib()


def infocse(materials: Materials, args: argparse.Namespace) -> dict:
    """InfoCSE's step; both sides get the same batches, a new one in each repetition."""
    theirs, own = plain_infocse(materials, args), mine(materials, args)
    batches = torch.load(materials.folder / "batches")

    def plain(number: int) -> None:
        take_step(theirs, batches[number], args.precision)

    def ours(number: int) -> None:
        take_step(own, batches[number], args.precision)

    return compared("infocse step", plain, ours, args)


def compared(
    name: str, plain: Callable[[int], None], ours: Callable[[int], None], args: argparse.Namespace
) -> dict:
    """The row of a step of both sides."""
    row = {"name": name, "precision": args.precision, "model": args.model}
    times = alternate(plain, ours, args.runs)
    return row | times | {"memory_ratio": None, "runs": args.runs}


def take_step(model: nn.Module, inputs: Mapping[str, Any], precision: str) -> None:
    """Forward and backward; gradients are freed at once to fit two models in memory."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        output = model(**inputs)  # a loss or an output with one
    (output if isinstance(output, Tensor) else output.loss).backward()
    model.zero_grad(set_to_none=True)


def simcse(materials: Materials, args: argparse.Namespace) -> dict:
    """SimCSE's step with tokenising against MultipleNegativesRankingLoss on each sentence twice.

    Both sides have the same weights, sentences, length, temperature and pooling ([CLS], no
    projection), with dropout.
    """
    transformer = Transformer(str(materials.folder / "bert"), max_seq_length=args.length)
    pooling = Pooling(transformer.get_embedding_dimension(), "cls")
    peer = SentenceTransformer(modules=[transformer, pooling], device="cpu").train()
    loss = MultipleNegativesRankingLoss(peer, scale=1 / TEMPERATURE)
    own = mine(materials, args, "simcse", projection="none", temperature=TEMPERATURE)
    cut = {"padding": True, "truncation": True, "max_length": args.length, "return_tensors": "pt"}

    def sentences(number: int) -> list[str]:
        start = (number + 1) * args.batch
        return materials.lines[start : start + args.batch]

    def plain(number: int) -> None:
        text = sentences(number)
        views = [peer.preprocess(text), peer.preprocess(text)]
        take_step(loss, {"sentence_features": views, "labels": None}, args.precision)

    def ours(number: int) -> None:
        tokens = materials.tokenizer(sentences(number), **cut)
        views = {name: torch.stack([tokens[name]] * 2) for name in ("input_ids", "attention_mask")}
        take_step(own, views, args.precision)

    return compared("simcse step against sentence-transformers", plain, ours, args)
