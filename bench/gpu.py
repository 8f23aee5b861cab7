"""A GPU in a few minutes: are steps right, which path is fastest, does the loop keep up, do runs
survive a kill.

python -m bench gpu --minutes 8 --output FILE.json      # writes FILE.json and the page FILE.md, row by row

Parts, the most important first, each with its share of the time: `right`, `fast`, `whole`, `safe`,
`true` (with --weights, --text and --data_dir). A row is written as soon as it is known. What fails
or does not fit becomes a row with the reason, and the next one goes on. --parts runs some again and
keeps FILE.json's other rows.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

from bench import gpu_fast, gpu_right, gpu_runs, timing
from bench.pair import MODELS
from bench.timing import Work
from common.errors import BadInput, brief
from common.flags import positive
from eval.scores import markdown, write_rows

logger = logging.getLogger(__name__)
# Shares of the time; what a part leaves passes on to the next.
SHARES = {"right": 25, "fast": 35, "whole": 15, "safe": 15, "true": 20}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=8, help="time for all parts")
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a rehearsal"
    )
    parser.add_argument(
        "--parts", nargs="+", choices=SHARES, default=list(SHARES), help="run only these"
    )
    parser.add_argument("--model", choices=MODELS, default="bert-base", help="size of timed models")
    parser.add_argument("--batch", type=positive, default=64, help="sentences per step")
    parser.add_argument("--length", type=positive, default=32, help="maximum tokens per sentence")
    parser.add_argument(
        "--steps", type=positive, default=200, help="steps of the runs that are killed or timed"
    )
    parser.add_argument("--weights", help="part true: a checkpoint to train, such as a small BERT")
    parser.add_argument("--text", help="part true: its training text")
    parser.add_argument(
        "--data_dir", help="part true: a folder with STS-B, as data.prepare makes it"
    )
    parser.add_argument(
        "--true_steps", type=positive, default=2000, help="part true: steps of a run"
    )


def rows(args) -> list[dict]:
    """The rows of all parts; those of --output that belong to other parts come along."""
    device = torch.device("cuda", 0) if args.device == "cuda" else torch.device("cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("torch sees no CUDA GPU; --device cpu rehearses the command")
    results = []
    if args.output and Path(args.output).suffix == ".md":
        raise BadInput(f"--output {args.output}: the page gets this name; give FILE.json")
    if args.output and Path(args.output).is_file():
        before = json.loads(Path(args.output).read_text(encoding="utf-8"))
        results = [row for row in before if row["part"] not in args.parts]
    for row in measured(args, device):
        logger.info("%s", row)
        results = [*results, row]
        results.sort(
            key=lambda row: [*SHARES, row["part"]].index(row["part"])
        )  # other versions have other parts
        if args.output:
            write_rows(args.output, results)
            Path(args.output).with_suffix(".md").write_text(page(results), encoding="utf-8")
    return results


def measured(args, device: torch.device) -> Iterator[dict]:
    """The rows of the chosen parts, in order."""
    parts = {"right": gpu_right.works, "fast": gpu_fast.works}
    parts |= {"whole": gpu_runs.whole, "safe": gpu_runs.safe, "true": gpu_runs.true}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    machine = {"device": name, "torch": torch.__version__}
    end = time.monotonic() + 60 * args.minutes
    chosen = [name for name in SHARES if name in args.parts]
    for number, part in enumerate(chosen):
        now = time.monotonic()
        share = SHARES[part] / sum(SHARES[name] for name in chosen[number:])
        for row in within(parts[part](args, device), now + share * (end - now)):
            yield machine | {"part": part} | row


def within(works: Iterable[Work], end: float) -> Iterator[dict]:
    """Each piece of work's row: its results, or the reason why there are none; `end` is a `time.monotonic` deadline."""
    for row, work in works:
        left = end - time.monotonic()
        if left < 1:
            yield row | {"failed": "no time left for it"}
            continue
        yield row | _limited(work, left)


def _limited(work: Callable[[], dict], seconds: float) -> dict:
    def time_out(*_) -> None:
        raise TimeoutError(f"its part's time ended after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, time_out)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return work()
    except Exception as error:  # a failed row must not lose the others
        return {"failed": f"{type(error).__name__}: {brief(error)}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.collect()  # otherwise its memory would count in the next peak
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def table(rows: list[dict]) -> str:
    """What the command prints: the page without its title."""
    return page(rows).split("\n", 2)[2]


def page(rows: list[dict]) -> str:
    """The rows as a Markdown page: the verdict first, then a table for each part."""
    first = rows[0]
    made = f"torch {first['torch']}. Written by `python -m bench gpu`. In bf16 unless a row says otherwise."
    lines = [f"# {first['device']}", "", made, "", *_verdict(rows), ""]
    for part in dict.fromkeys(row["part"] for row in rows):
        mine = [row for row in rows if row["part"] == part]
        lines += [f"## {part}", "", _right(mine) if part == "right" else timing.table(mine), ""]
    return "\n".join(lines)


def _verdict(rows: list[dict]) -> list[str]:
    """Sentences that follow from the rows."""
    said = []
    checks = [row for row in rows if row["part"] == "right" and "right" in row]
    if checks:
        good = sum(row["right"] for row in checks)
        said.append(f"{good} of {len(checks)} steps agree with the CPU.")
    for name in ("infocse", "simcse", "stage 1"):
        mine = [
            row for row in rows if row["part"] == "fast" and row["name"] == name and "ms" in row
        ]
        timed = {row["path"]: row["ms"] for row in mine}
        if timed:
            best = min(timed, key=timed.get)
            plain = timed.get("published")
            ratio = (
                f", {plain / timed[best]:.2f} times as fast as the published step" if plain else ""
            )
            said.append(f"{name}: {best} is fastest, {timed[best]:.2f} ms a step{ratio}.")
    return [" ".join(said)] if said else []


def _right(rows: list[dict]) -> str:
    """One line for every shape, path and precision; every step that is wrong or failed by name."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["shape"], row["path"], row["precision"]), []).append(row)
    lines = [
        [
            "shape",
            "path",
            "precision",
            "right",
            "worst loss",
            "worst gradient",
            "worst update",
            "not right",
        ]
    ]
    for group, members in groups.items():
        checked = [row for row in members if "right" in row]
        errors = ("loss_error", "gradient_error", "update_error")
        worst = [
            f"{max((row[name] for row in checked), default=float('nan')):.1e}" for name in errors
        ]
        wrong = [row for row in members if not row.get("right")]
        named = "; ".join(
            f"{row['name']} ({row.get('failed') or row['gradient_error']})" for row in wrong
        )
        lines.append([*group, f"{len(members) - len(wrong)} of {len(members)}", *worst, named])
    return markdown(lines)
