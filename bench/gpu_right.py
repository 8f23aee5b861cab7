"""Part `right`: a step of every method and of stage 1 on the device against the same step on the
CPU in float32.

Dropout is 0, so that nothing but rounding differs. Errors are relative to the norm of the CPU's
values: of the loss, of all gradients, and of the change that one AdamW step makes. AdamW's epsilon
is 1e-3: at 1e-8 the first step would have full size also where a gradient is zero up to rounding.
"""

from __future__ import annotations

import copy
import gc
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn

from bench.cases import STAGE_ONE, Case, Materials
from bench.timing import Work
from training.graph import GraphedStep
from training.methods import method_names

SHAPES = {
    "tiny": {"initializer_range": 0.1},  # vectors that differ
    "bert-base, 4 layers": {
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
}
LAYERS = {"tiny": 2, "bert-base, 4 layers": 4}
BATCH, LENGTH, SEED = 8, 32, 3
NOT_GRAPHED = (
    "dclr",
    "esimcse",
    "memory_bank",
    "moco",
)  # their objectives say why, see `Objective.not_replayed`
LIMITS = {"float32": 1e-3, "bf16": 0.15, "float32, graph": 1e-3}  # of the errors


class Taken(NamedTuple):
    """A step's loss, gradients and new weights, on the CPU in float32."""

    loss: Tensor
    gradients: list[Tensor]
    weights: list[Tensor]


def works(args, device: torch.device) -> Iterator[Work]:
    """Every objective, padded and packed, at two sizes."""
    for shape in SHAPES if args.model != "tiny" else ("tiny",):
        with tempfile.TemporaryDirectory() as folder:
            dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
            sizes = dropout | SHAPES[shape]
            materials = Materials(Path(folder), LAYERS[shape], BATCH, LENGTH, ("bert",), **sizes)
            for name in (*method_names(), STAGE_ONE):
                compared = Compared(materials, name, device)
                for path in ("padded", "packed"):
                    for precision in LIMITS:
                        if not ("graph" in precision and name in NOT_GRAPHED):
                            row = {
                                "name": name,
                                "shape": shape,
                                "path": path,
                                "precision": precision,
                            }
                            yield row, partial(compared.against, path, precision)
                del compared
                gc.collect()


class Compared:
    """The step of an objective; the CPU's, which is padded, is computed when it is first needed."""

    def __init__(self, materials: Materials, name: str, device: torch.device) -> None:
        self.materials, self.name, self.device = materials, name, device
        self.made: dict[str, tuple] = {}
        self.reference: Taken | None = None

    def against(self, path: str, precision: str) -> dict:
        """The errors of a path and precision."""
        if self.reference is None:
            self.reference = self._take("padded", torch.device("cpu"), "float32")
        taken, reference = self._take(path, self.device, precision), self.reference
        before = [p.detach() for p in self._made("padded")[0].parameters() if p.requires_grad]
        sides = taken.weights, reference.weights
        changes = (
            [new - old for new, old in zip(weights, before, strict=True)] for weights in sides
        )
        row = {
            "loss_error": _error([taken.loss], [reference.loss]),
            "gradient_error": _error(taken.gradients, reference.gradients),
            "update_error": _error(*changes),
        }
        right = all(error <= LIMITS[precision] for error in row.values())
        return {name: float(f"{error:.2e}") for name, error in row.items()} | {"right": right}

    def _made(self, path: str) -> tuple[nn.Module, dict]:
        """Model and batch.

        The second view has another sentence's tokens, since equal views have hardly a gradient.
        """
        if path not in self.made:
            flags = {} if self.name == STAGE_ONE else {"dropout": 0.0}
            model, collator = self.materials.parts(
                Case(self.name, "bert", path == "packed", "float32"), **flags
            )
            inputs = collator([(0, row, 0) for row in range(BATCH)])
            if "dropout_rates" in inputs:
                inputs["dropout_rates"] = torch.zeros_like(inputs["dropout_rates"])
            ids = inputs["input_ids"]
            if self.name != STAGE_ONE and len(ids) > 1:
                inputs["input_ids"] = torch.cat([ids[:1], ids[1:].roll(1, dims=1)])
            self.made[path] = model, inputs
        return self.made[path]

    def _take(self, path: str, device: torch.device, precision: str) -> Taken:
        """Forward, backward and AdamW from the same weights."""
        made, inputs = self._made(path)
        model = copy.deepcopy(made).to(device).train()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            trained, lr=1e-3, eps=1e-3, weight_decay=0.0, fused=device.type == "cuda"
        )
        inputs = send_to_device(inputs, device)
        torch.manual_seed(SEED)
        if "graph" in precision:
            step = GraphedStep(model, nullcontext)
            step(
                {**inputs, "input_ids": inputs["input_ids"].clone().fill_(5)}
            )  # captures the graph
            torch.manual_seed(SEED)
            output = step(inputs)
        else:
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
                output = model(**inputs)
            output.loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in trained]
        optimizer.step()
        loss, *parts = (
            [part.detach().float().cpu() for part in some]
            for some in ([output.loss], gradients, trained)
        )
        return Taken(*loss, *parts)


def _error(values: list[Tensor], expected: list[Tensor]) -> float:
    """|values - expected| / |expected|, over all tensors together."""
    gap = torch.stack(
        [(a - b).double().norm() for a, b in zip(values, expected, strict=True)]
    ).norm()
    return float(gap / torch.stack([b.double().norm() for b in expected]).norm())
