"""`python -m papers.gradients`: what InfoCSE's losses do to the encoder, step by step.

Sections 1, 5.1 and 5.4 of the paper (arXiv 2210.06432) speak of gradients and losses that none of
its tables shows. At every N-th training step the gradient of each loss alone is computed on the
step's batch, without its weight and with dropout of its own. The training is that of the study
infocse-cause, with the paper's lambda; repeated, the command measures what is missing.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from transformers import TrainerCallback

import run_unsup
from common.errors import BadInput, run_command
from common.files import read_rows
from common.flags import Parser, output_folder, positive
from common.folders import locked
from common.signals import stoppable
from common.streams import show
from eval.scores import markdown, write_rows
from models.objectives.base import Batch
from papers import study, study_runs
from papers.runs import Choice, facts_of
from training.run_folder import read_run

STUDY, FILE = "infocse-cause", "infocse-gradients.json"
RANDOM = "random layers"
ARMS = ("Condenser-style", "RetroMAE-style", RANDOM)
LOSSES = ("contrastive", "auxiliary", "mlm")


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m papers.gradients", description=__doc__)
    arms = "starts of the auxiliary network: a stage 1, or none (default: all)"
    p.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS], help=arms)
    p.add_argument("--seeds", nargs="+", type=int, default=[0], help="one training per seed")
    p.add_argument("--model", required=True, help="checkpoint to start from, as for the study")
    p.add_argument("--steps", type=positive, default=1000, help="of each training")
    p.add_argument("--every", type=positive, default=10, help="steps between measurements")
    p.add_argument("--data_dir", default="corpora", help="folder with texts")
    p.add_argument("--runs", default="runs/tables", help="folder for the study's stage 1")
    p.add_argument("--output", default="filled", help=f"folder for {FILE}")
    return p


@stoppable
def main(argv: Sequence[str] | None = None) -> list[dict]:
    """Measure the arms that the file lacks, one after the other; return all its rows.

    Raises:
        BadInput: the file has an arm that was measured with another model or other steps.
    """
    args = parser().parse_args(argv)
    path = output_folder(args.output) / FILE
    how = {"model": args.model, "steps": args.steps, "every": args.every}
    for seed in args.seeds:
        for arm in args.arms:
            known = [row for row in _known(path) if (row["arm"], row["seed"]) == (arm, seed)]
            if any(row.get("how") != how for row in known):
                raise BadInput(f"{path}: has {arm} with other settings; give another --output")
            if not known:
                measured = [{**row, "how": how} for row in measure(arm, seed, args)]
                with locked(path, wait=True):
                    others = [
                        row for row in _known(path) if (row["arm"], row["seed"]) != (arm, seed)
                    ]
                    write_rows(path, [*others, *measured])
    show(table(_known(path)))
    return _known(path)


def _known(path: Path) -> list[dict[str, Any]]:
    return read_rows(path, "measured gradients")


def measure(arm: str, seed: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train one arm; a row per measured step."""
    content = study.read(STUDY)
    paper = content.levels["start"].get(arm, {"aux_init": "random", "skip_from": "2"})
    flags = {**content.flags, **paper, "aux_weight": "1e-5", "max_steps": str(args.steps)}
    flags |= {"dev": "none", "save_strategy": "no"}
    choice = Choice(model=args.model, data_dir=args.data_dir, runs=args.runs)
    plan = study_runs.plan_of_flags(flags, choice)
    if plan.starts_from:
        plan.starts_from.train(choice, seed)
    words = [
        word for word in plan.command(choice, seed)[1:] if not word.startswith("--output_dir=")
    ]
    gradients = Gradients(args.every)
    with TemporaryDirectory(prefix="gradients-") as folder:
        run_unsup.main([*words, f"--output_dir={folder}"], [gradients])
        facts = facts_of(read_run(Path(folder)))
    return [{"arm": arm, "seed": seed, **row, "facts": facts} for row in gradients.rows]


class Gradients(TrainerCallback):
    """Norms of the losses' gradients at the encoder's parameters, every so many steps."""

    def __init__(self, every: int) -> None:
        self.every, self.rows = every, list[dict[str, float]]()
        self._inputs: dict[str, Any] = {}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        def keep(module, given, inputs):
            self._inputs = inputs

        model.register_forward_pre_hook(keep, with_kwargs=True)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every == 0:
            devices = [args.device] if args.device.type == "cuda" else []
            autocast = torch.autocast(args.device.type, torch.bfloat16, enabled=args.bf16)
            # The training's own draws stay the same.
            with torch.random.fork_rng(devices), autocast:
                self.rows.append({"step": state.global_step, **norms(model, self._inputs)})


def norms(model, inputs: dict[str, Any]) -> dict[str, float]:
    """The losses of a batch and the norms of their gradients; `model` is an InfoCSE in training.

    Token losses are means over the `tokens` that are predicted. `mlm` is the encoder's own masked
    language modelling of the same tokens, through the same output matrix.
    """
    batch = Batch.of(**inputs)
    encoded = model.encode(batch)
    model.project(encoded, batch)
    contrastive, auxiliary = model.objectives
    [contrast] = contrastive(encoded, batch).values()
    [masked] = auxiliary(encoded, batch).values()
    twin, views = batch.twins["masked"], len(auxiliary.views)
    mask = batch.attention_mask[:views].flatten(0, 1)
    states = model.encoder.states(twin.input_ids.flatten(0, 1), mask)
    total, count = auxiliary.output.token_loss(states, twin.labels.flatten(0, 1))
    values = (contrast.value, masked.value / masked.count, total / count)
    parameters = [*model.encoder.backbone.parameters()]
    found = {"tokens": int(count)}
    for name, value in zip(LOSSES, values, strict=True):
        gradients = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        lengths = [gradient.norm() for gradient in gradients if gradient is not None]
        found |= {name: value.item(), f"{name}_gradient": torch.stack(lengths).norm().item()}
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The arms' means over the measured steps, and their changes from one to the next."""
    titles = ["auxiliary network", "seeds", "steps", *(f"{name} gradient" for name in LOSSES)]
    titles += ["auxiliary / MLM gradient", "auxiliary gradient moves by", "auxiliary / contrastive"]
    lines = [[*titles, "with the sum over tokens", "steps above 1,000"]]
    for arm, runs in pd.DataFrame(rows).groupby("arm", sort=False):
        sizes = [f"{runs[f'{name}_gradient'].mean():.3g}" for name in LOSSES]
        share = (runs["auxiliary_gradient"] / runs["mlm_gradient"]).mean()
        moves = runs.groupby("seed")["auxiliary_gradient"].diff().abs().mean()
        ratio = runs["auxiliary"] / runs["contrastive"]
        summed = ratio * runs["tokens"]
        steps = max(facts["steps"] for facts in runs["facts"])
        line = [arm, str(runs["seed"].nunique()), str(steps), *sizes]
        line += [f"{share:.3g}", f"{moves:.3g}", f"{ratio.median():.3g}", f"{summed.median():,.0f}"]
        lines.append([*line, f"{(summed > 1000).mean():.0%}"])
    return markdown(lines)


if __name__ == "__main__":
    run_command(main)
