"""The measurements of `python -m bench gpu` on a machine with a GPU; every part runs on a CPU too, which tests use."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertModel, BertTokenizer

from bench import pair
from common.files import sha256
from eval.encode import Encode
from eval.scores import markdown
from models.encoder import SentenceEncoder
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining

PATHS = ("plain", "padded", "packed", "packed, compiled")
ROOT = Path(__file__).parents[1]
BATCHES, WARM, TIMED = 8, 6, 24  # different batches; steps before and within a measurement
STSB_DEV = 3000  # sentences of STS-B dev, 16 tokens on average
_WORDS = ["".join(letters) for letters in itertools.product("abcdefghijkl", repeat=3)]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


class PlainSimCSE(nn.Module):
    """SimCSE's step as its authors compute it: both views in one padded forward."""

    def __init__(self, encoder: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.encoder, self.projection = encoder, projection

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        ids, mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
        first, second = self.projection(self.encoder(ids, mask).last_hidden_state[:, 0]).float().chunk(2)
        cosines = F.cosine_similarity(first[:, None], second[None], dim=-1)
        return F.cross_entropy(cosines / pair.TEMPERATURE, torch.arange(len(first), device=ids.device))


def rows(args, device: torch.device) -> list[dict]:
    """Steps, an evaluation, a training run with its resume, and two processes where there are two GPUs."""
    where = {"device": device_name(device), "model": args.model, "precision": "bf16"}
    peak = product_rate(device)
    found = [step(kind, path, args, device, peak) for kind in ("infocse", "simcse") for path in PATHS]
    found.append(evaluation(args.model, device))
    with tempfile.TemporaryDirectory() as folder:
        found += Runs(Path(folder), args, device).rows()
    return [where | {"product_tflops": round(peak)} | row for row in found]


def device_name(device: torch.device) -> str:
    """What nvidia-smi calls the GPU; `cpu` for a CPU."""
    if device.type == "cpu":
        return "cpu"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(device: torch.device, work: Callable[[int], object], warm: int, timed: int) -> float:
    """Of one call, the mean of `timed`."""
    for number in range(warm):
        work(number)
    _wait(device)
    start = time.perf_counter()
    for number in range(timed):
        work(number)
    _wait(device)
    return (time.perf_counter() - start) / timed


def product_rate(device: torch.device) -> float:
    """TFLOP/s of a large bfloat16 product: what a step could reach at best."""
    size = 8192 if device.type == "cuda" else 256
    one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    return 2 * size**3 / _seconds(device, lambda _: one @ one, 3, 10) / 1e12


def step(kind: str, path: str, args, device: torch.device, peak: float) -> dict:
    """Forward, backward, clipping and AdamW of one batch; a row that says why where the path does not run."""
    row = {"name": f"{kind} step", "path": path}
    try:
        return row | _measured(kind, path, args, device, peak)
    except Exception as error:  # one path that fails must not cost the other figures
        return row | {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
    finally:
        torch.compiler.reset()


def _measured(kind: str, path: str, args, device: torch.device, peak: float) -> dict:
    model = build(kind, path, args.model).to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    call = torch.compile(model, fullgraph=True, dynamic=False) if "compiled" in path else model
    made = [batch(kind, path, model, args, number + 1) for number in range(BATCHES)]
    tokens = sum(int(each["attention_mask"].sum()) for each in made) / BATCHES
    made = [send_to_device(each, device) for each in made]

    def take(number: int) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            output = call(**made[number % BATCHES])
            loss = output if isinstance(output, Tensor) else output.loss
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    counted = nullcontext() if call is not model else FlopCounterMode(display=False)
    with counted as counter:
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
        return pair.plain(lm) if path == "plain" else pair.ours(lm, "bf16", packed=packed)
    projection = pair.projection(lm)
    if path == "plain":
        return PlainSimCSE(lm.bert, projection).train()
    encoder = SentenceEncoder(lm.bert, "cls_before_pooler", None, 512, packed)
    return EncoderForTraining(encoder, projection, [Contrastive(pair.TEMPERATURE)]).train()


def batch(kind: str, path: str, model: nn.Module, args, seed: int) -> dict:
    """A batch of real lengths; with the layouts that our model reads."""
    made = pair.batch(pair.config_of(args.model), args.batch, args.length, seed)
    if kind == "simcse":
        made = {name: made[name] for name in ("input_ids", "attention_mask")}
    if path == "plain":
        return made
    marked = {"masked": ((0, 1), made["masked_labels"].numpy())} if kind == "infocse" else {}
    packing = model.packing(2, static="compiled" in path)
    return made | {"layouts": packing.layouts(made["attention_mask"].numpy() != 0, marked)}


def evaluation(model: str, device: torch.device) -> dict:
    """As many sentences as STS-B dev has, encoded in bf16."""
    config = pair.config_of(model)
    encoder = SentenceEncoder(BertModel(config, add_pooling_layer=False), "cls_before_pooler", None, 512, packed=True)
    count = STSB_DEV if device.type == "cuda" else 20
    encode = Encode(encoder.to(device), tokenizer(config.vocab_size), 512, bf16=True)
    texts = sentences(count, 24)
    encode(texts)
    seconds = _seconds(device, lambda _: encode(texts), 0, 3)
    return {"name": f"encoding {count} sentences", "path": "packed", "ms": round(1000 * seconds, 1)}


def tokenizer(vocabulary: int) -> BertTokenizer:
    """One whose words are those of `sentences`."""
    return BertTokenizer(vocab={word: i for i, word in enumerate((_SPECIAL + _WORDS)[:vocabulary])})


def sentences(count: int, longest: int) -> list[str]:
    """Sentences of random words."""
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(_WORDS, generator.integers(4, longest))) for _ in range(count)]


class Runs:
    """Training runs of SimCSE by the script itself, on text made here."""

    def __init__(self, folder: Path, args, device: torch.device) -> None:
        self.folder, self.args, self.device = folder, args, device
        config = pair.config_of(args.model)
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder / "start")
        tokenizer(config.vocab_size).save_pretrained(folder / "start")
        text = sentences((args.steps + 1) * args.batch, args.length)
        (folder / "text.txt").write_text("\n".join(text) + "\n", encoding="utf-8")

    def rows(self) -> list[dict]:
        """The run, the same run killed and gone on with, and with two processes where there are two GPUs."""
        started = time.perf_counter()
        self._train("whole", self.args.steps)
        seconds = time.perf_counter() - started
        short = max(4, self.args.steps // 5)
        one, other = self._train("one", short), self._killed("other", short)
        found = [
            {"name": f"run of {self.args.steps} steps", "path": "as the script chooses", "seconds": round(seconds, 1)},
            {"name": f"resume after a kill, {short} steps", "bit_for_bit": sha256(one) == sha256(other)},
        ]
        if self.device.type == "cuda" and torch.cuda.device_count() > 1:
            started = time.perf_counter()
            self._train("two", self.args.steps, processes=2)
            found.append({"name": "the run with two processes", "seconds": round(time.perf_counter() - started, 1)})
        return found

    def _command(self, name: str, steps: int, processes: int) -> list[str]:
        flags = {
            "method": "simcse", "model_name_or_path": self.folder / "start", "train_file": self.folder / "text.txt",
            "cache_dir": self.folder / "cache", "output_dir": self.folder / name, "max_steps": steps,
            "max_length": self.args.length, "per_device_train_batch_size": self.args.batch // processes,
            "save_steps": max(1, steps // 3), "eval_steps": steps, "dev": "none", "test_tasks": "none",
            "bf16": "true", "report_to": "none", "use_cpu": self.device.type == "cpu",
        }  # fmt: skip
        argv = [
            str(ROOT / "run_unsup.py"),
            *(part for key, value in flags.items() for part in (f"--{key}", str(value))),
        ]
        if self.device.type == "cpu":
            return [sys.executable, *argv]
        config = ROOT / "configs" / "accelerate" / ("two_gpus.yaml" if processes > 1 else "one_gpu.yaml")
        return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), *argv]

    def _train(self, name: str, steps: int, processes: int = 1) -> Path:
        """The weights of a finished run."""
        done = subprocess.run(self._command(name, steps, processes), cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-1000:])
        return self.folder / name / "model.safetensors"

    def _killed(self, name: str, steps: int) -> Path:
        """The same, but killed when its first checkpoint is there."""
        first = self.folder / name / f"checkpoint-{max(1, steps // 3)}"
        command = self._command(name, steps, 1)
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True) as child:
            while child.poll() is None and not first.is_dir():
                time.sleep(0.05)
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)  # the launcher and the script
        return self._train(name, steps)


def page(found: list[dict]) -> str:
    """The figures as a page."""
    columns = list(dict.fromkeys(name for row in found for name in row))
    columns = [name for name in columns if name not in ("device", "product_tflops")]
    cells = [["" if row.get(name) is None else str(row[name]) for name in columns] for row in found]
    first = found[0]
    rate = f"A bfloat16 product of 8192 x 8192 matrices runs at {first['product_tflops']} TFLOP/s."
    return f"# {first['device']}\n\n{rate} `python -m bench gpu` measured:\n\n{markdown([columns, *cells])}\n"
