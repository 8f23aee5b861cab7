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


def take_steps(model, collator, bf16: bool, batch: int):
    """Take steps as in a CUDA graph; the log covers the last one, after the copy of its batch."""
    with pretending() as log:
        log.reset()
        move(model).train()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)
        bad = FirstBad(torch.device("cuda:0"))
        for step in range(STEPS):
            inputs = collator([(0, step * batch + row, step) for row in range(batch)])
            shares = fast.shares_of(
                {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}
            )
            log.reset()
            inputs = send_to_device(inputs, "cuda:0", non_blocking=True)
            log.reset(active=True)
            half = torch.autocast("cuda", dtype=torch.bfloat16) if bf16 else nullcontext()
            with half, fast.fixed(shares):
                output = model(**inputs)
            output.loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(
                trained, 1.0, foreach=True
            )  # torch's default on a GPU
            bad.note(step + 1, [*output.terms.values(), norm])
            optimizer.step()
            optimizer.zero_grad()
            model.after_step()
            log.active = False
    return LOG


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    for row in rows(*map(int, sys.argv[1:])):
        sys.stdout.write(json.dumps(row) + "\n")
