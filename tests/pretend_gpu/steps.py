"""A training step of every objective on the pretend device: a JSON row per case."""

from __future__ import annotations

import itertools
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
from accelerate.utils import send_to_device

from bench.cases import FAMILIES, STAGE_ONE, TINY, Case, Materials
from models import fast
from tests.pretend_gpu.device import LOG, move, pretending
from training.faults import FirstBad
from training.graph import GraphedStep
from training.methods import method_names

STEPS = 2  # the second is counted: the first creates the optimizer's state


def rows(layers: int, batch: int, length: int) -> Iterator[dict]:
    """The operations of a step of a quarter of the cases; those that wait or mix devices by place.

    An objective meets both values of family, path and precision in two opposite cases; its
    neighbours meet the others.
    """
    with tempfile.TemporaryDirectory() as folder:
        sizes = TINY | {"num_hidden_layers": layers}
        materials = Materials(Path(folder), sizes, batch, length, tuple(FAMILIES))
        names = [*method_names(), STAGE_ONE]
        for case in itertools.starmap(
            Case, itertools.product(names, FAMILIES, (True, False), ("float32", "bf16"))
        ):
            bert = case.family == "bert"
            pair = 2 * (case.packed == bert) + ((case.precision == "bf16") == bert)
            if names.index(case.objective) % 4 == pair:
                log = take_steps(*materials.parts(case), case.precision == "bf16", batch)
                yield vars(case) | {
                    "operations": log.operations,
                    "synchronisations": log.synchronisations.total(),
                    "mixed_devices": log.mixed.total(),
                    "places": dict(log.synchronisations | log.mixed),
                }


class Uncaptured(GraphedStep):
    """Takes every step as if it were captured."""

    def capture(self, inputs, shares):
        return lambda: self.take(inputs, shares)


def take_steps(model, collator, bf16: bool, batch: int):
    """Take steps as in a CUDA graph; the log covers the last one, after the copy of its batch."""
    with pretending() as log:
        log.reset()
        move(model).train()
        half = torch.autocast("cuda", dtype=torch.bfloat16) if bf16 else nullcontext()
        take = Uncaptured(model, lambda: half, 1.0)
        optimizer = torch.optim.AdamW(take.trained, lr=1e-3, fused=True)
        bad = FirstBad(torch.device("cuda:0"))
        for step in range(STEPS):
            inputs = collator([(0, step * batch + row, step) for row in range(batch)])
            shares = fast.shares_of(inputs)
            log.reset()
            inputs = send_to_device(inputs, "cuda:0", non_blocking=True)
            log.reset(active=True)
            taken = take(inputs, shares)
            bad.note(step + 1, [*taken.terms.values(), taken.norm])
            optimizer.step()
            model.after_step()
            log.active = False
    return LOG


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    for row in rows(*map(int, sys.argv[1:])):
        sys.stdout.write(json.dumps(row) + "\n")
