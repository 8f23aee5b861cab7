"""InfoCSE's and SimCSE's published numbers on this machine: one command, which resumes.

    python reproduce.py --dry_run            # downloads, disk space and minutes; stops there
    python reproduce.py                      # all parts, one seed
    python reproduce.py --parts checkpoints  # trains nothing: scores the authors' models
    python reproduce.py --seeds 0 1 2 3 4    # start it once per GPU: they share the work
    python reproduce.py --scale small        # a small BERT and 1,000 steps
    accelerate launch --config_file configs/accelerate/two_gpus.yaml reproduce.py

checkpoints  scores the authors' InfoCSE, SimCSE and DiffCSE beside their published scores
simcse       trains SimCSE with the published values, from BERT
infocse      trains InfoCSE's stage 2 with the published values, from the checkpoint of the
             authors' script (Condenser's public one), and SimCSE from it, as its control

The page is reproductions/NAME/README.md; it can be sent as a pull request.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from huggingface_hub import HfApi

import infocse
from bench.cases import STAGE_ONE, Case, Materials
from bench.timing import step_ms
from common.errors import FolderInUse, ProjectError, StorageError, brief, run_command
from common.files import ROOT, RUN_FILE, read_rows
from common.flags import Parser, output_folder
from common.folders import locked, share
from common.signals import stoppable
from common.streams import show
from data.prepare import prepare
from eval.published import __main__ as published
from eval.scores import markdown
from papers.reproduction import write_page
from training.config_files import read_config
from training.run_folder import finished

logger = logging.getLogger(__name__)
PARTS = ("checkpoints", "simcse", "infocse")
AUTHORS = ("infocse-bert-base", "unsup-simcse-bert-base-uncased", "diffcse-bert-base-uncased-sts")
CONDENSER = "Luyu/condenser"
BATCH = 64  # sentences
MEASURED = 25  # steps
LONGEST = 30.0  # seconds, after which a measurement ends with its second step
BERT_BASE = (12, 768, 12)  # layers, width, heads
# Milliseconds of a step of 64 sentences of bert-base, and where they are from.
KNOWN = (
    ("NVIDIA H200, --cuda_graph", "simcse", 16.85, "results/gpu-h200.md, in the Trainer"),
    ("NVIDIA H200, --cuda_graph", "infocse", 15.60, "results/gpu-h200.md, the step alone"),
    ("the authors' GPU", "infocse", 308.5, "PAPERS.md: 9,642 s for 31,250 steps"),
)


@dataclass(frozen=True)
class Scale:
    """How large a reproduction is.

    Attributes:
        model: SimCSE's checkpoint, a hub id.
        stage_one: InfoCSE's checkpoint, a hub id; None trains one from `model`.
        size: layers, width and heads, to measure a step before anything is downloaded.
        steps: of every training; None: the published number of epochs.
        examples: of the training text.
    """

    model: str
    stage_one: str | None
    size: tuple[int, int, int]
    steps: int | None = None
    examples: int = 1_000_000


SCALES = {
    "full": Scale("bert-base-uncased", CONDENSER, BERT_BASE),
    "medium": Scale("google/bert_uncased_L-6_H-512_A-8", None, (6, 512, 8), 1000),
    "small": Scale("google/bert_uncased_L-4_H-256_A-4", None, (4, 256, 4), 1000),
}


@dataclass(frozen=True)
class Arm:
    """One method, trained with several seeds.

    Attributes:
        name: of the arm, and of its runs' folder.
        part: one of `PARTS`.
        method: of its configuration, which has the published values.
        start: `model` or `stage_one` of the scale.
        epochs: of its configuration.
    """

    name: str
    part: str
    method: str
    start: str
    epochs: int


ARMS = (
    Arm("simcse", "simcse", "simcse", "model", 1),
    Arm("infocse", "infocse", "infocse", "stage_one", 2),
    Arm("simcse-control", "infocse", "simcse", "stage_one", 1),  # published nowhere
)


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python reproduce.py", description=__doc__)
    p.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], help="what to do")
    p.add_argument(
        "--seeds", nargs="+", type=int, default=[0], help="one training of each arm per seed"
    )
    scales = "full: bert-base as published; small (4 layers of 256), medium (6 of 512): 1,000 steps"
    p.add_argument("--scale", choices=SCALES, default="full", help=scales)
    name = "of the page's folder (default: the scale and the device)"
    p.add_argument("--name", help=name)
    p.add_argument(
        "--runs", default="runs/reproduce", metavar="DIR", help="folder of the trainings"
    )
    p.add_argument("--pages", default="reproductions", metavar="DIR", help="folder of the pages")
    p.add_argument("--data_dir", default="corpora", help="folder that `data.prepare` fills")
    hub = "then send the trained models with their cards to OWNER/NAME-ARM-seed-N"
    p.add_argument("--push_to_hub", metavar="OWNER/NAME", help=hub)
    p.add_argument("--dry_run", action="store_true", help="print the plan and stop")
    return p


@stoppable
def main(argv: Sequence[str] | None = None) -> str | None:
    """Do the parts that nobody does or has done; return the page's folder, None if others go on."""
    args = parser().parse_args(argv)
    scale = SCALES[args.scale]
    runs = output_folder(args.runs, "runs") / args.scale
    first = is_first()
    if "RANK" not in os.environ:  # one process that measures a step would wait for the others
        show(plan(args, scale))
    elif first:
        show("under a launcher no step is measured: `python reproduce.py --dry_run` has the plan")
    if args.dry_run:
        return None
    # Every process: the others would look for the data before the first one has fetched it.
    with kept("the data", args.data_dir), locked(Path(args.data_dir) / "data", wait=True):
        said = prepare(["sts", "wiki1m"], Path(args.data_dir))
    if first:
        show("\n".join(said))
    jobs: dict[str, Callable[[bool], None]] = {}
    if first and "checkpoints" in args.parts:
        jobs["checkpoints"] = partial(score_checkpoints, runs / "checkpoints.json", args.data_dir)
    for seed in args.seeds:
        for arm in (arm for arm in ARMS if arm.part in args.parts):
            jobs[f"{arm.name}, seed {seed}"] = partial(train, arm, scale, seed, runs, args.data_dir)
    left = share(jobs)
    if not first:
        return None
    if left:
        show(f"other commands are still at: {'; '.join(left)}; the last to end writes the page")
        return None
    if args.push_to_hub:
        push(args.push_to_hub, runs)
    folder = write_page(runs, Path(args.pages), args.name or default_name(args.scale), args.scale)
    show(f"page: {folder / 'README.md'}")
    return str(folder)


def is_first() -> bool:
    """Whether this is the main process of its launcher."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def kept(what: str, folder: str | Path) -> Iterator[None]:
    """Say, in the error of a part, what the next command finds."""
    try:
        yield
    except ProjectError as error:
        message = f"{what}: {error}; what is finished in {folder} is kept: repeat the command"
        raise type(error)(message) from error
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise StorageError(f"{what}: out of memory ({brief(error)}); {folder} is kept") from error


def score_checkpoints(file: Path, data_dir: str, wait: bool) -> None:
    """Score the authors' models that are not in the file yet."""
    with locked(file):
        for name in AUTHORS:
            if name not in {entry["name"] for entry in read_rows(file, published.FILE)}:
                with kept(f"checkpoint {name}", file.parent):
                    published.main([name, "--data_dir", data_dir, "--output", str(file)])


def train(arm: Arm, scale: Scale, seed: int, runs: Path, data_dir: str, wait: bool) -> None:
    """One training, which resumes; a finished one is left as it is; `wait` for its stage 1."""
    folder = runs / f"{arm.name}-seed-{seed}"
    settings: dict[str, Any] = {"seed": seed, "data_dir": data_dir, "output_dir": folder}
    with kept(folder.name, runs):
        if arm.start == "stage_one":
            start = stage_one(scale, runs, data_dir, wait)
            settings["model"] = start
            if arm.name == "infocse":
                settings["skip_from"] = "auto"
                settings["aux_init"] = "checkpoint" if has_head(start) else "random"
        else:
            settings["model"] = scale.model
        if scale.steps:
            settings["max_steps"] = scale.steps
        infocse.train(config=config_of(arm.method), **settings, **machine())


def config_of(method: str) -> Path:
    """The configuration with the published values of a method or of stage 1."""
    name = "aux" if method == STAGE_ONE else method
    return ROOT / "configs" / f"{name}-bert-base.yaml"


def machine() -> dict[str, Any]:
    """Settings that this machine decides."""
    one_gpu = torch.cuda.is_available() and "RANK" not in os.environ
    return {"use_cpu": "auto", "bf16": "auto", "cuda_graph": one_gpu}


def stage_one(scale: Scale, runs: Path, data_dir: str, wait: bool) -> Path:
    """The folder of InfoCSE's stage 1: the authors', or one trained here or by another command."""
    if scale.stage_one:
        return published.fetch(scale.stage_one, more=["model.pt"])
    folder = runs / "stage-1"
    pretrain = partial(
        infocse.pretrain,
        config=config_of(STAGE_ONE),
        model=scale.model,
        train_file="text/wiki1m_for_simcse.txt",
        data_dir=data_dir,
        skip_from="auto",
        max_steps=scale.steps,
        output_dir=folder,
        **machine(),
    )
    try:
        return Path(pretrain())
    except FolderInUse:
        if not wait:
            raise
    if is_first():
        with locked(folder / RUN_FILE, wait=True):
            pass
    return Path(pretrain())


def has_head(folder: Path) -> bool:
    """Whether a checkpoint brings the layers of the auxiliary network.

    Condenser's README calls its public checkpoint headless. The published script then trains new
    layers without a word; so do we, and the page says so.
    """
    return any((folder / name).is_file() for name in ("model.pt", "aux_head.safetensors"))


def push(repository: str, runs: Path) -> None:
    """Export every finished run of these arms, and send it to the hub."""
    from export import hub
    from export.__main__ import main as export

    for folder in sorted(runs.glob("*-seed-*")):
        target = runs / "exports" / folder.name
        if finished(folder):
            name = f"{repository}-{folder.name}"
            if target.exists():  # an earlier command may not have sent it
                hub.push(target, name, private=False)
            else:
                export([str(folder), "--output", str(target), "--push_to_hub", name])


def default_name(scale: str) -> str:
    """A page's folder: the scale and the device."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return f"{scale}-{device.lower().replace(' ', '-')}"


def plan(args: argparse.Namespace, scale: Scale) -> str:
    """Downloads, disk space and minutes, before anything is downloaded."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    lines = [f"reproduce, --scale {args.scale}, on: {device}", "", "downloads"]
    lines += [f"  {line}" for line in downloads(args.parts, scale)]
    arms = [arm for arm in ARMS if arm.part in args.parts]
    trainings = [(arm.name, arm.method, arm.epochs, len(args.seeds)) for arm in arms]
    if "infocse" in args.parts and scale.stage_one is None:
        trainings.insert(0, (STAGE_ONE, STAGE_ONE, 1, 1))
    rows, total = [["training", "times", "steps", "ms a step", "minutes", "known from"]], 0.0
    for name, method, epochs, times in trainings:
        steps = scale.steps or epochs * (scale.examples // BATCH)
        places = [(measured_step(method, scale), "this machine, on made-up text")]
        if scale.size == BERT_BASE:
            places += [(ms, f"{place}: {source}") for place, of, ms, source in KNOWN if of == name]
        for milliseconds, source in places:
            minutes = times * steps * milliseconds / 60_000
            cells = [f"{times}", f"{steps:,}", f"{milliseconds:.1f}", f"{minutes:,.0f}"]
            rows.append([name, *cells, source])
        total += times * steps * places[0][0] / 60_000
    if trainings:
        lines += ["", "trainings (evaluations every 125 steps add about a tenth)"]
        lines += [f"  {line}" for line in markdown(rows).splitlines()]
    layers, width, _ = scale.size
    parameters = 12 * layers * width**2 + 31_000 * width
    copies = 2 * 3 + 2  # two checkpoints with the optimizer's moments, the best model, the result
    need = parameters * 4 * (copies + len(arms) * len(args.seeds)) / 1e9
    runs = output_folder(args.runs, "runs")
    free = shutil.disk_usage(runs).free / 1e9
    lines += ["", f"disk: about {need:.1f} GB below {runs}; {free:.0f} GB are free"]
    if total > 24 * 60:
        lines.append(f"this machine needs {total / 1440:.1f} days; --scale small takes less")
    lines.append("the same command resumes; what is finished is not done again")
    return "\n".join(lines)


def downloads(parts: Sequence[str], scale: Scale) -> list[str]:
    """A line for each repository: its size, and the sha256 of its weights."""
    lines = ["data: STS sets (40 MB, every file pinned by sha256), wiki1m (110 MB)"]
    repositories = []
    if "checkpoints" in parts:
        repositories += [published.checkpoints()[name]["hub"] for name in AUTHORS]
    if "simcse" in parts or ("infocse" in parts and not scale.stage_one):
        repositories.append(scale.model)
    if "infocse" in parts and scale.stage_one:
        repositories.append(scale.stage_one)
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT", "").rstrip("/") or None)
    for name in repositories:
        try:
            files = api.model_info(name, files_metadata=True, timeout=10).siblings or []
        except Exception as error:  # the client raises all kinds of errors
            lines.append(f"{name}: size unknown, the hub does not answer ({brief(error)})")
            continue
        weights = [file for file in files if file.rfilename.endswith((".safetensors", ".bin"))]
        size = sum(file.size or 0 for file in weights)
        digests = [f"{file.rfilename} {file.lfs.sha256}" for file in weights if file.lfs]
        lines.append(f"{name}: {size / 1e6:,.0f} MB; sha256 {', '.join(digests) or 'not given'}")
    return lines


@cache
def measured_step(method: str, scale: Scale) -> float:
    """Milliseconds of a training step here: random weights of the same size, made-up text."""
    layers, width, heads = scale.size
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }
    logger.info("measuring a step of %s, for half a minute or two steps", method)
    with TemporaryDirectory(prefix="measure-") as folder:
        values = read_config(config_of(method))
        batch, length = (
            values.get("per_device_train_batch_size", BATCH),
            values.get("max_length", 32),
        )
        materials = Materials(Path(folder), sizes, int(batch), int(length), rows=40 * int(batch))
        flags = {"max_steps": MEASURED, "save_strategy": "no", "disable_tqdm": True, **machine()}
        if method != STAGE_ONE:
            flags["dev"] = "none"
        return step_ms(materials.trainer(Case(method), **flags), 1, longest=LONGEST)


if __name__ == "__main__":
    run_command(main)
