"""The measurements of `python -m bench gpu` on a GPU; for tests, every part also runs on a CPU."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertModel

from bench import pair
from common.files import ROOT, sha256
from eval.encode import Encode
from models.encoder import SentenceEncoder
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining

PATHS = ("plain", "padded", "packed", "packed, compiled")
LIMIT = 480  # seconds for all parts together; the compiled steps come last
BATCHES, WARM, TIMED = 8, 6, 24  # different batches; warm-up steps and timed steps
STSB_DEV = 3000  # sentences in STS-B dev, 16 tokens on average


class PlainSimCSE(nn.Module):
    """SimCSE's step as in the authors' code: both views in one padded forward pass."""

    def __init__(self, encoder: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.encoder, self.projection = encoder, projection

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        ids, mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
        first, second = self.projection(self.encoder(ids, mask).last_hidden_state[:, 0]).float().chunk(2)
        cosines = F.cosine_similarity(first[:, None], second[None], dim=-1)
        return F.cross_entropy(cosines / pair.TEMPERATURE, torch.arange(len(first), device=ids.device))


def rows(args, device: torch.device) -> Iterator[dict]:
    """Training steps, an evaluation, training runs, then compiled steps: one row each, as soon as it is measured."""
    shared, end = {"device": device_name(device), "model": args.model, "precision": "bf16"}, time.monotonic() + LIMIT
    peak = product_rate(device)
    steps = [({"name": f"{kind} step", "path": path}, partial(step, kind, path, args, device, peak))
             for path in PATHS for kind in ("infocse", "simcse")]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), args, device)
        others = [
            ({"name": "encoding"}, partial(evaluation, args.model, device)),
            ({"name": f"run of {args.steps} steps"}, runs.whole),
            ({"name": "resume after a kill"}, runs.resumed),
        ]
        if device.type == "cuda" and torch.cuda.device_count() > 1:
            others.append(({"name": "the run with two processes"}, partial(runs.whole, 2)))
        for row, work in (*steps[:-2], *others, *steps[-2:]):
            yield shared | {"product_tflops": round(peak)} | measure(row, work, end)


def measure(row: dict, work: Callable[[], dict], end: float) -> dict:
    """A row with the results of a part, or the reason why it failed; `end` is a `time.monotonic` deadline."""

    def time_out(*_) -> None:
        raise TimeoutError(f"the limit of {LIMIT} seconds was reached")

    before = signal.signal(signal.SIGALRM, time_out)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 1e-3))
        return row | work()
    except Exception as error:  # a failed part must not lose the results of the others
        return row | {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        torch.compiler.reset()
        gc.collect()  # otherwise this part's memory would count in the next part's peak


def device_name(device: torch.device) -> str:
    """The name of the GPU and its driver version according to nvidia-smi; `cpu` for a CPU."""
    if device.type == "cpu":
        return "cpu"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        versions = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout.split()
    except (OSError, subprocess.SubprocessError):
        versions = []
    return f"{torch.cuda.get_device_name(device)}, driver {versions[0] if versions else 'unknown'}"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(device: torch.device, work: Callable[[int], object], warm: int, timed: int) -> float:
    """Mean seconds per call over `timed` calls, after `warm` warm-up calls."""
    for number in range(warm):
        work(number)
    _wait(device)
    start = time.perf_counter()
    for number in range(timed):
        work(number)
    _wait(device)
    return (time.perf_counter() - start) / timed


def product_rate(device: torch.device) -> float:
    """TFLOP/s of a large bfloat16 matrix product, an upper bound for a step."""
    size = 8192 if device.type == "cuda" else 256
    one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    return 2 * size**3 / _seconds(device, lambda _: one @ one, 3, 10) / 1e12


def step(kind: str, path: str, args, device: torch.device, peak: float) -> dict:
    """Forward, backward, clipping and AdamW for one batch."""
    model = build(kind, path, args.model).to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    call = torch.compile(model, fullgraph=True, dynamic=False) if "compiled" in path else model
    inputs = batches(kind, path, model, args)
    tokens = sum(int(each["attention_mask"].sum()) for each in inputs) / BATCHES
    inputs = [send_to_device(each, device) for each in inputs]

    def take(number: int) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            output = call(**inputs[number % BATCHES])
            loss = output if isinstance(output, Tensor) else output.loss
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    with nullcontext() if call is not model else FlopCounterMode(display=False) as counter:
        take(0)
    warm, timed = (WARM + BATCHES, TIMED) if device.type == "cuda" else (1, 1)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds = _seconds(device, take, warm, timed)
    memory = torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else None
    flops = counter.get_total_flops() / seconds / 1e12 if counter else None
    return {"ms": round(1000 * seconds, 2), "tokens_per_s": round(tokens / seconds),
            "share_of_product": None if flops is None else round(flops / peak, 3),
            "memory_mb": None if memory is None else round(memory)}  # fmt: skip


def build(kind: str, path: str, model: str) -> nn.Module:
    """The model of a path, with the same random weights in every call."""
    lm, packed = pair.masked_lm(model), path.startswith("packed")
    if kind == "infocse":
        return pair.PlainInfoCSE(lm) if path == "plain" else pair.ours(lm, "bf16", packed=packed)
    projection = pair.projection(lm)
    if path == "plain":
        return PlainSimCSE(lm.bert, projection).train()
    encoder = SentenceEncoder(lm.bert, "cls_before_pooler", None, 512, packed)
    return EncoderForTraining(encoder, projection, [Contrastive(pair.TEMPERATURE)]).train()


def batches(kind: str, path: str, model: nn.Module, args) -> list[dict]:
    """Different batches; for a compiled step all of one shape, because compiling each shape takes a minute."""
    first, *others = (batch(kind, path, model, args, seed) for seed in range(1, 10 * BATCHES))
    same = [each for each in others if "compiled" not in path or _sizes(each) == _sizes(first)]
    return [first, *same][:BATCHES]


def _sizes(inputs: dict) -> list[list[torch.Size]]:
    return [[part.shape for part in layout.parts.values()] for layout in inputs["layouts"].values()]


def batch(kind: str, path: str, model: nn.Module, args, seed: int) -> dict:
    """A batch with realistic lengths, and for our model its layouts."""
    inputs = pair.batch(pair.config_of(args.model), args.batch, args.length, seed)
    if kind == "simcse":
        inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    if path == "plain":
        return inputs
    marked = {"masked": ((0, 1), inputs["masked_labels"].numpy())} if kind == "infocse" else {}
    packing = model.packing(2, static="compiled" in path)
    return inputs | {"layouts": packing.layouts(inputs["attention_mask"].numpy() != 0, marked)}


def evaluation(model: str, device: torch.device) -> dict:
    """Encode as many sentences as STS-B dev has, in bf16."""
    config = pair.config_of(model)
    encoder = SentenceEncoder(BertModel(config, add_pooling_layer=False), "cls_before_pooler", None, 512, packed=True)
    count = STSB_DEV if device.type == "cuda" else 20
    encode = Encode(encoder.to(device), pair.tokenizer_of(pair.WORDS, config.vocab_size), bf16=True)
    texts = sentences(count, 24)
    encode(texts)
    seconds = _seconds(device, lambda _: encode(texts), 0, 3)
    return {"sentences": count, "path": "packed", "ms": round(1000 * seconds, 1)}


def sentences(count: int, longest: int) -> list[str]:
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(pair.WORDS, generator.integers(4, longest))) for _ in range(count)]


class Runs:
    """SimCSE training runs with the real script, on generated text."""

    def __init__(self, folder: Path, args, device: torch.device) -> None:
        self.folder, self.args, self.device = folder, args, device
        config = pair.config_of(args.model)
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder / "start")
        pair.tokenizer_of(pair.WORDS, config.vocab_size).save_pretrained(folder / "start")
        text = sentences((args.steps + 1) * args.batch, args.length)
        (folder / "text.txt").write_text("\n".join(text) + "\n", encoding="utf-8")

    def whole(self, processes: int = 1) -> dict:
        """Seconds of a run, including start-up."""
        started = time.perf_counter()
        self._run(f"with-{processes}", self.args.steps, processes)
        return {"path": "as the script chooses", "seconds": round(time.perf_counter() - started, 1)}

    def resumed(self) -> dict:
        """Whether a run that is killed at its first checkpoint and resumed ends with the same weights."""
        steps = max(4, self.args.steps // 5)
        one = self._run("one", steps)
        self._run("other", steps, until=self.folder / "other" / f"checkpoint-{_every(steps)}")
        return {"steps": steps, "bit_for_bit": sha256(one) == sha256(self._run("other", steps))}

    def _command(self, name: str, steps: int, processes: int) -> list[str]:
        flags = {
            "method": "simcse", "model_name_or_path": self.folder / "start", "train_file": self.folder / "text.txt",
            "cache_dir": self.folder / "cache", "output_dir": self.folder / name, "max_steps": steps,
            "max_length": self.args.length, "per_device_train_batch_size": self.args.batch // processes,
            "save_steps": _every(steps), "save_total_limit": 1, "eval_steps": steps, "dev": "none",
            "test_tasks": "none", "bf16": "true", "report_to": "none", "use_cpu": self.device.type == "cpu",
            "dataloader_num_workers": 2 if self.device.type == "cuda" else 0,
        }  # fmt: skip
        argv = [str(ROOT / "run_unsup.py"), *(f"--{key}={value}" for key, value in flags.items())]
        if processes == 1:
            return [sys.executable, *argv]
        config = str(ROOT / "configs" / "accelerate" / "two_gpus.yaml")
        return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, *argv]

    def _run(self, name: str, steps: int, processes: int = 1, until: Path | None = None) -> Path:
        """Run the script and return the path of its weights; if `until` is given, kill it when that folder exists."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"  # a scheduler may have assigned another GPU
        environment = os.environ | ({"CUDA_VISIBLE_DEVICES": visible.split(",")[0]} if processes == 1 else {})
        end = signal.SIGKILL if processes == 1 else signal.SIGTERM  # a launcher forwards SIGTERM
        log = self.folder / "log"
        with log.open("w") as stderr, subprocess.Popen(
            self._command(name, steps, processes), cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=stderr,
            start_new_session=True,
        ) as child:  # fmt: skip
            try:
                while child.poll() is None and not (until and until.is_dir()):
                    time.sleep(0.05)
            finally:  # also after a timeout
                if child.poll() is None:
                    os.killpg(child.pid, end)
        if child.returncode != (-signal.SIGKILL if until else 0):
            raise RuntimeError(f"exit code {child.returncode}: {log.read_text()[-250:]}")
        return self.folder / name / "model.safetensors"


def _every(steps: int) -> int:
    """Steps between two checkpoints of a run."""
    return max(1, steps // 3)
