"""Part `fast`: milliseconds of a training step with AdamW at bert-base size, by path."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bench import pair
from bench.timing import Work
from models import fast
from models.encoder import SentenceEncoder
from models.fast.chunking import GradientCache
from models.masked_lm import AuxiliaryMaskedLM
from models.objectives.base import Batch
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining
from training.graph import GraphedStep

METHODS = ("infocse", "simcse", "stage 1")
PATHS = ("published", "padded", "packed", "padded, graph", "packed, graph")
LARGE = 8  # times the batch, for the rows on gradient caching
BATCHES, WARM, TIMED = (
    8,
    10,
    50,
)  # different batches; steps before and, at most, during a measurement
ENOUGH = 1.5  # seconds of a measurement


def works(args, device: torch.device) -> Iterator[Work]:
    """Every method and path, sentence-transformers, gradient caching."""
    peak = product_rate(device)
    for name in METHODS:
        for path in PATHS:
            yield {"name": name, "path": path}, partial(step, name, path, args, device, peak)
    yield (
        {"name": "simcse with its tokenising", "path": "sentence-transformers"},
        partial(peer, args, device),
    )
    for path in ("padded", "packed"):
        for chunk in (None, args.batch):
            row = {"name": f"infocse, {LARGE * args.batch} sentences", "path": path}
            row["path"] += f", {chunk} at a time" if chunk else ""
            yield row, partial(step, "infocse", path, args, device, peak, LARGE, chunk)


def step(
    name: str,
    path: str,
    args,
    device: torch.device,
    peak: float,
    times: int = 1,
    chunk: int | None = None,
) -> dict:
    """Forward, backward, clipping, AdamW; `peak` is of `product_rate`, the batch `times` --batch, `chunk` at a time."""
    model = build(name, path, args.model).to(device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=device.type == "cuda")
    inputs = [batch(name, path, model, args, seed, times, chunk) for seed in range(1, BATCHES + 1)]
    tokens = sum(int(given["attention_mask"].sum()) for given in inputs) / len(inputs)
    inputs = [send_to_device(given, device) for given in inputs]
    half = partial(torch.autocast, device.type, dtype=torch.bfloat16)
    graphed = GraphedStep(model, half) if "graph" in path else None
    cache = GradientCache(model, chunk, half) if chunk else None

    def take(number: int) -> None:
        given = inputs[number % len(inputs)]
        if graphed:
            graphed(given)
        elif cache:
            cache.backward(Batch.of(**given))
        else:
            with half():
                output = model(**given)
            (output if isinstance(output, Tensor) else output.loss).backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    with nullcontext() if graphed else FlopCounterMode(display=False) as counter:
        take(0)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    first, second = timed(take, device), timed(take, device)
    ms = min(first, second)
    return {
        "ms": round(ms, 2),
        "again_ms": round(max(first, second), 2),
        "tokens_per_s": round(1000 * tokens / ms),
        "share_of_product": round(counter.get_total_flops() / ms / 1e9 / peak, 3)
        if counter
        else None,
        "memory_mb": peak_mb(device),
        "shapes": len(graphed.captured) if graphed else None,
    }


def peak_mb(device: torch.device) -> int | None:
    """The peak of the device's allocated memory since it was last reset; None on a CPU."""
    return round(torch.cuda.max_memory_allocated(device) / 1e6) if device.type == "cuda" else None


def timed(take: Callable[[int], object], device: torch.device) -> float:
    """Median milliseconds of a call, by CUDA events between consecutive calls; the host does not wait in between."""
    if device.type == "cpu":
        start = time.perf_counter()
        take(0)
        return 1000 * (time.perf_counter() - start)
    take(0)
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    for number in range(WARM):
        take(number)
    torch.cuda.synchronize(device)
    count = max(WARM, min(TIMED, int(ENOUGH * WARM / (time.perf_counter() - start))))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    for number, mark in enumerate(marks):
        mark.record()
        if number < count:
            take(number)
    torch.cuda.synchronize(device)
    return statistics.median(marks[i].elapsed_time(marks[i + 1]) for i in range(count))


def product_rate(device: torch.device) -> float:
    """TFLOP/s of a large bfloat16 matrix product of random numbers, an upper bound for a step."""
    size = 8192 if device.type == "cuda" else 256
    matrix = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    return 2 * size**3 / timed(lambda _: matrix @ matrix, device) / 1e9


def build(name: str, path: str, model: str) -> nn.Module:
    """The model of a path, with the same random weights in every call."""
    lm, packed = pair.masked_lm(model), path.startswith("packed")
    if name == "infocse":
        return (
            pair.PlainInfoCSE(lm) if path == "published" else pair.ours(lm, "bf16", packed=packed)
        )
    if name == "stage 1":
        head, skip = pair.new_head(lm), pair.skip_from(lm.config)
        stage_one = (
            PlainStageOne(lm, head, skip)
            if path == "published"
            else AuxiliaryMaskedLM(lm, head, skip, packed)
        )
        return stage_one.train()
    projection = pair.projection(lm)
    if path == "published":
        return PlainSimCSE(lm.bert, projection).train()
    encoder = SentenceEncoder(lm.bert, "cls_before_pooler", None, 512, packed)
    return EncoderForTraining(encoder, projection, [Contrastive(pair.TEMPERATURE)]).train()


class PlainSimCSE(nn.Module):
    """SimCSE's step as in the authors' code: both views in one padded forward pass."""

    def __init__(self, encoder: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.encoder, self.projection = encoder, projection

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        ids, mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
        first, second = (
            self.projection(self.encoder(ids, mask).last_hidden_state[:, 0]).float().chunk(2)
        )
        similarity = F.cosine_similarity(first[:, None], second[None], dim=-1)
        return F.cross_entropy(
            similarity / pair.TEMPERATURE, torch.arange(len(first), device=ids.device)
        )


class PlainStageOne(nn.Module):
    """Stage 1's step as in Condenser's code: both losses with logits at every position."""

    def __init__(self, lm: nn.Module, head: nn.ModuleList, skip_from: int) -> None:
        super().__init__()
        self.lm, self.head, self.skip_from = lm, head, skip_from

    def forward(
        self, attention_mask: Tensor, masked_input_ids: Tensor, masked_labels: Tensor, **_: Tensor
    ) -> Tensor:
        ids, real, labels = masked_input_ids[0], attention_mask[0], masked_labels[0]
        output = self.lm(ids, real, labels=labels, output_hidden_states=True)
        states = torch.cat(
            [output.hidden_states[-1][:, :1], output.hidden_states[self.skip_from][:, 1:]], dim=1
        )
        mask = pair.mask_of(self.lm.config, states, real)
        for layer in self.head:
            states = layer(states, mask)
        logits = self.lm.cls(states).float().flatten(0, 1)
        return output.loss + F.cross_entropy(logits, labels.flatten(), ignore_index=pair.IGNORED)


def batch(
    name: str, path: str, model: nn.Module, args, seed: int, times: int, chunk: int | None
) -> dict:
    """A batch with realistic lengths and, for our models, its layouts."""
    inputs = pair.batch(pair.config_of(args.model), times * args.batch, args.length, seed)
    if name == "stage 1":
        inputs = {part: value[:1] for part, value in inputs.items()}
    if name == "simcse":
        inputs = {part: inputs[part] for part in ("input_ids", "attention_mask")}
    if path == "published":
        return inputs
    marked = {}
    if "masked_labels" in inputs:
        labels = inputs["masked_labels"].numpy()
        marked = {"masked": (tuple(range(len(labels))), labels)}
    packed = (model if name == "stage 1" else model.encoder).packed
    packing = fast.packing(packed, 0 if name == "stage 1" else chunk or 0, "graph" in path)
    return inputs | {"layouts": packing.layouts(inputs["attention_mask"].numpy() != 0, marked)}


def peer(args, device: torch.device) -> dict:
    """sentence-transformers' SimCSE step: MultipleNegativesRankingLoss on each sentence twice."""
    model, loss = pair.peer(pair.config_of(args.model), args.length, str(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device.type == "cuda")

    def take(number: int) -> None:
        texts = pair.sentences(args.batch, number)
        inputs = [send_to_device(dict(model.preprocess(texts)), device) for _ in range(2)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            value = loss(inputs, None)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    take(0)
    first, second = timed(take, device), timed(take, device)
    return {"ms": round(min(first, second), 2), "again_ms": round(max(first, second), 2)}
