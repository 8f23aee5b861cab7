"""The measurements of `python -m bench gpu` on a machine with a GPU; every part runs on a CPU too, which tests use."""

from __future__ import annotations

import gc
import itertools
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
from transformers import BertModel, BertTokenizer

from bench import pair
from common.files import sha256
from eval.encode import Encode
from eval.scores import markdown
from models.encoder import SentenceEncoder
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining

PATHS = ("plain", "padded", "packed", "packed, compiled")
LIMIT = 480  # seconds for all parts together, of which the compiled steps come last
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


def rows(args, device: torch.device) -> Iterator[dict]:
    """Steps, an evaluation, training runs, and what has to be compiled first: a row each as soon as it is known."""
    where, end = {"device": device_name(device), "model": args.model, "precision": "bf16"}, time.monotonic() + LIMIT
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
            yield where | {"product_tflops": round(peak)} | taken(row, work, end)


def taken(row: dict, work: Callable[[], dict], end: float) -> dict:
    """A row with what a part measures, or why it has no figures; `end` as `time.monotonic` counts."""

    def late(*_) -> None:
        raise TimeoutError(f"the {LIMIT} seconds were over")

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 1e-3))
        return row | work()
    except Exception as error:  # one part that fails must not cost the other figures
        return row | {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        torch.compiler.reset()
        gc.collect()  # else the next part's peak memory would have this one's


def device_name(device: torch.device) -> str:
    """What torch calls the GPU, and the driver where nvidia-smi is there to say it; `cpu` for a CPU."""
    if device.type == "cpu":
        return "cpu"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout.split()
    except (OSError, subprocess.SubprocessError):
        said = []
    return f"{torch.cuda.get_device_name(device)}, driver {said[0] if said else 'unknown'}"


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
    """Forward, backward, clipping and AdamW of one batch."""
    model = build(kind, path, args.model).to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    call = torch.compile(model, fullgraph=True, dynamic=False) if "compiled" in path else model
    made = batches(kind, path, model, args)
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


def batches(kind: str, path: str, model: nn.Module, args) -> list[dict]:
    """Some different ones; of one shape for a compiled step, as each is compiled anew and that takes a minute."""
    first, *others = (batch(kind, path, model, args, seed) for seed in range(1, 10 * BATCHES))
    alike = [each for each in others if "compiled" not in path or _sizes(each) == _sizes(first)]
    return [first, *alike][:BATCHES]


def _sizes(made: dict) -> list[list[torch.Size]]:
    return [[part.shape for part in layout.parts.values()] for layout in made["layouts"].values()]


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
    return {"sentences": count, "path": "packed", "ms": round(1000 * seconds, 1)}


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

    def whole(self, processes: int = 1) -> dict:
        """Seconds of a run, its start included."""
        started = time.perf_counter()
        self._run(f"with-{processes}", self.args.steps, processes)
        return {"path": "as the script chooses", "seconds": round(time.perf_counter() - started, 1)}

    def resumed(self) -> dict:
        """Whether a run that was killed at its first checkpoint ends as one that was not."""
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
        """The weights of a run; where `until` is given, it is killed when that folder is there."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"  # a scheduler may have given us another than the first
        environment = os.environ | ({"CUDA_VISIBLE_DEVICES": visible.split(",")[0]} if processes == 1 else {})
        end = signal.SIGKILL if processes == 1 else signal.SIGTERM  # which a launcher passes on
        log = self.folder / "log"
        with log.open("w") as said, subprocess.Popen(
            self._command(name, steps, processes), cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=said,
            start_new_session=True,
        ) as child:  # fmt: skip
            try:
                while child.poll() is None and not (until and until.is_dir()):
                    time.sleep(0.05)
            finally:  # also when the time is over
                if child.poll() is None:
                    os.killpg(child.pid, end)
        if child.returncode != (-signal.SIGKILL if until else 0):
            raise RuntimeError(f"exit code {child.returncode}: {log.read_text()[-250:]}")
        return self.folder / name / "model.safetensors"


def _every(steps: int) -> int:
    """After how many steps a run of so many writes a checkpoint."""
    return max(1, steps // 3)


def page(found: list[dict]) -> str:
    """The figures as a page."""
    columns = list(dict.fromkeys(name for row in found for name in row))
    columns = [name for name in columns if name not in ("device", "product_tflops")]
    cells = [["" if row.get(name) is None else str(row[name]) for name in columns] for row in found]
    first = found[0]
    rate = f"A bfloat16 product of 8192 x 8192 matrices runs at {first['product_tflops']} TFLOP/s."
    return f"# {first['device']}\n\n{rate} `python -m bench gpu` measured:\n\n{markdown([columns, *cells])}\n"
