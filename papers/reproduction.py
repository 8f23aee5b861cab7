"""The page of a reproduction, made from its runs: `python reproduce.py` writes it.

reproductions/NAME/ has README.md, result.json and curves.png; reproductions/README.md lists all.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from common.files import read_json, read_rows, write_json, writing
from eval.compare.sides import PREFIX
from eval.scores import AVERAGE, markdown
from infocse import compare
from papers.differences import in_words, over_seeds
from papers.page import mean_and_deviation
from training.curves import auxiliary_losses, read_log
from training.provenance import provenance
from training.run_folder import finished, read_run, starts

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", AVERAGE)
RECORDS = {"simcse": "simcse-bert-base", "infocse": "infocse-bert-base"}  # by arm
# STS-B dev of the authors' InfoCSE, the first evaluations that are published (PAPERS.md).
AUTHORS_CURVE = {125: 64.37, 250: 70.08, 375: 72.37, 500: 73.03, 625: 73.96, 750: 77.79}
AUTHORS_BEST = 85.49
_DEV = "eval_stsb_spearman"
INDEX = """# Reproductions

Pages that `python reproduce.py` wrote, on machines of this project and of others. To add yours,
send its folder as a pull request. A row counts if it has all seven STS sets, a checkpoint chosen on
STS-B dev, the commit, and the dev scores of the run in its result.json. STS: mean of the seven test
sets, Spearman x 100; published: InfoCSE 78.85, SimCSE 76.25 (single runs, bert-base).

"""


def write_page(runs: Path, pages: Path, name: str, scale: str) -> Path:
    """Collect what is finished in `runs`, write the page, list it; return its folder."""
    arms = {}
    for arm in ("simcse", "infocse", "simcse-control"):
        if folders := folders_of(runs, arm):
            arms[arm] = facts_of(folders)
    result = {
        "name": name,
        "scale": scale,
        "checkpoints": read_rows(runs / "checkpoints.json", "scores"),
        "arms": arms,
        "differences": differences(runs, arms, scale),
        **provenance(),
    }
    folder = pages / name
    write_json(folder / "result.json", result)
    draw_curves(result, folder / "curves.png")
    with writing(folder / "README.md") as part:
        part.write_text(page(result), encoding="utf-8")
    files = sorted(pages.glob("*/result.json"))
    results = [read_json(file, "a reproduction's result") for file in files]
    with writing(pages / "README.md") as part:
        part.write_text(index(results), encoding="utf-8")
    return folder


def folders_of(runs: Path, arm: str) -> list[Path]:
    """The finished runs of an arm, by seed."""
    folders = [path for path in runs.glob(f"{arm}-seed-*") if finished(path)]
    return sorted(folders, key=lambda path: int(path.name.rpartition("-")[2]))


def facts_of(folders: list[Path]) -> dict[str, Any]:
    """Scores by task and seed, curves, minutes, every start, and what [CLS] tells the auxiliary."""
    facts: dict[str, Any] = {"seeds": [], "scores": {}, "minutes": [], "curves": [], "cls": []}
    facts["starts"] = []
    for folder in folders:
        run, log = read_run(folder), read_log(folder)
        seed = run["settings"]["seed"]
        facts["seeds"].append(seed)
        for start in starts(run):
            facts["starts"].append({"seed": seed, **start})
        # A resumed run knows the time of its last start alone.
        resumed = "earlier_starts" in run
        facts["minutes"].append(None if resumed else run["seconds_of_last_start"] / 60)
        facts["curves"].append([[line["step"], line[_DEV]] for line in log if _DEV in line])
        losses = [[line.step, line.own, line.other] for line in auxiliary_losses(log)]
        facts["cls"].append(losses[-1] if losses else None)
        rows = read_json(folder / "scores.json", "scores", kind=list)
        for row in rows:
            if row["headline"] and row["task"] in TASKS:
                facts["scores"].setdefault(row["task"], []).append(row["value"])
        facts["aux_init"] = run["settings"].get("aux_init")
    return facts


def differences(runs: Path, arms: dict[str, dict[str, Any]], scale: str) -> list[dict[str, Any]]:
    """The average of each arm of bert-base against its published score; InfoCSE and its control."""
    rows = []
    for arm, record in RECORDS.items():
        if arm not in arms or scale != "full":
            continue
        published = f"{PREFIX}{record}"
        for row in compare(",".join(map(str, folders_of(runs, arm))), published):
            if row["task"] == AVERAGE:
                against = f"{PREFIX}{row['against']}" if row["against"] else published
                rows.append({"arm": arm, "other": against, **row, "word": word(row)})
    pair = [arms.get(arm, {"scores": {}}) for arm in ("infocse", "simcse-control")]
    if all(AVERAGE in facts["scores"] for facts in pair):
        rows.append(against_control(*pair))
    return rows


def against_control(infocse: dict[str, Any], control: dict[str, Any]) -> dict[str, Any]:
    """InfoCSE's average minus that of its control, in pairs by seed."""
    a = pd.Series(infocse["scores"][AVERAGE], index=infocse["seeds"])
    b = pd.Series(control["scores"][AVERAGE], index=control["seeds"])
    difference = over_seeds((a - b).dropna())
    found = {"difference": difference.mean, "low": difference.low, "high": difference.high}
    return {
        "arm": "infocse",
        "other": "simcse-control",
        "a": a.mean(),
        "b": b.mean(),
        **{name: None if pd.isna(value) else value for name, value in found.items()},
        "method": "pairs of seeds",
        "word": in_words(difference, difference.p),
    }


def word(row: dict[str, Any]) -> str:
    """What the interval of a difference to a published score allows to say."""
    if row["low"] is None:
        return "one seed says little" if row["a_runs"] == 1 else "the published score is one run"
    if row["low"] > 0:
        return "above"
    return "below" if row["high"] < 0 else "reproduced within the spread of seeds"


def page(result: dict[str, Any]) -> str:
    """The page in Markdown."""
    parts = [f"# Reproduction: {result['name']}"]
    if not result["arms"]:
        parts.append("No training is finished.")
    elif result["scale"] != "full":
        parts.append("A small BERT: its scores are not those of the papers' bert-base.")
    if result["arms"] or result["checkpoints"]:
        parts.append(scores_table(result))
    if result["differences"]:
        rows = [["", "against", "difference", "95 % interval", ""]]
        for row in result["differences"]:
            shown = "-" if row["difference"] is None else f"{row['difference']:+.2f}"
            interval = "-" if row["low"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}"
            rows.append([row["arm"], row["other"], shown, interval, row["word"]])
        parts += ["## Differences of the STS average", markdown(rows)]
    if result["arms"]:
        parts += ["## STS-B dev while training", "![dev scores](curves.png)", curve_table(result)]
        parts += ["## How", starts_table(result)]
        if lines := how(result):
            parts.append("\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def scores_table(result: dict[str, Any]) -> str:
    """Published scores, the authors' checkpoint scored here, and what was trained here."""
    rows = [["Spearman x 100", "runs", *TASKS]]

    def add(name: str, runs: int, shown: dict[str, str]) -> None:
        rows.append([name, str(runs), *(shown.get(task, "-") for task in TASKS)])

    for entry in result["checkpoints"]:
        for column, name in (("published", "published"), ("ours", "the authors' checkpoint, here")):
            scored = [score for score in entry["scores"] if column in score]
            shown = {score["task"]: f"{score[column]:.2f}" for score in scored}
            add(f"{entry['name']}: {name}", 1, shown)
    for arm, facts in result["arms"].items():
        scores = facts["scores"].items()
        shown = {task: mean_and_deviation(pd.Series(values), "-") for task, values in scores}
        add(f"{arm}: trained here", len(facts["seeds"]), shown)
    return markdown(rows)


def curve_table(result: dict[str, Any]) -> str:
    """The first dev scores beside the authors' published ones, and the best."""
    rows = [["step", *map(str, AUTHORS_CURVE), "best"]]
    if result["scale"] == "full":
        authors = [f"{score:.2f}" for score in AUTHORS_CURVE.values()]
        rows.append(["InfoCSE, published", *authors, f"{AUTHORS_BEST:.2f}"])
    for arm, facts in result["arms"].items():
        for seed, curve in zip(facts["seeds"], facts["curves"], strict=True):
            scores = dict(curve)
            cells = [f"{scores[step]:.2f}" if step in scores else "-" for step in AUTHORS_CURVE]
            rows.append([f"{arm}, seed {seed}", *cells, f"{max(scores.values()):.2f}"])
    return markdown(rows)


def starts_table(result: dict[str, Any]) -> str:
    """Machine and code of every start of every run; a resumed run has several."""
    rows = [["run", "minutes", "machine", "commit", "changed files", "versions"]]
    for arm, facts in result["arms"].items():
        minutes = dict(zip(facts["seeds"], facts["minutes"], strict=True))
        for start in facts["starts"]:
            timed, hardware = minutes[start["seed"]], start["hardware"]
            cells = [
                f"{arm}, seed {start['seed']}",
                "resumed" if timed is None else f"{timed:.0f}",
                f"{hardware['device']} ({hardware['machine']}, {hardware['threads']} threads)",
                str(start["commit"]),
                str(start["changed_files"]),
                ", ".join(f"{name} {version}" for name, version in start["versions"].items()),
            ]
            rows.append(cells)
    return markdown(rows)


def how(result: dict[str, Any]) -> list[str]:
    """What the auxiliary network does with [CLS], and how its layers began."""
    lines = []
    for arm, facts in result["arms"].items():
        for seed, losses in zip(facts["seeds"], facts["cls"], strict=True):
            if losses:
                step, own, other = losses
                lines.append(
                    f"{arm}, seed {seed}, step {step}: auxiliary loss {own:.3f} nats with the "
                    f"sentence's own [CLS], {other:.3f} with another sentence's"
                )
        if facts["aux_init"] == "random":
            lines.append(
                f"{arm}: the checkpoint has no auxiliary layers (Condenser's public one is "
                "headless), so they began as random ones, as in the published script"
            )
    return lines


def draw_curves(result: dict[str, Any], path: Path) -> None:
    """Dev scores by step of every run, and the authors' published points."""
    if not result["arms"]:
        return
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, (arm, facts) in enumerate(result["arms"].items()):
        for curve in facts["curves"]:
            steps, scores = zip(*curve, strict=True)
            axes.plot(steps, scores, color=f"C{number}", linewidth=1)
        axes.plot([], [], color=f"C{number}", label=f"{arm}, {len(facts['seeds'])} seeds")
    if result["scale"] == "full":
        points = AUTHORS_CURVE.items()
        axes.plot(*zip(*points, strict=True), "k.", label="InfoCSE, the authors' log")
    axes.set_xlabel("step")
    axes.set_ylabel("STS-B dev, Spearman x 100")
    axes.legend()
    with writing(path) as part:
        figure.savefig(part, format="png", dpi=150)


def index(results: list[dict[str, Any]]) -> str:
    """The table of all pages, by score, then by minutes."""
    rows = []
    for result in results:
        for arm, facts in result["arms"].items():
            if averages := facts["scores"].get(AVERAGE):
                timed = [value for value in facts["minutes"] if value is not None]
                minutes = mean(timed) if timed else inf
                devices = dict.fromkeys(start["hardware"]["device"] for start in facts["starts"])
                cells = [
                    arm,
                    mean_and_deviation(pd.Series(averages), "-"),
                    str(len(averages)),
                    f"{minutes:.0f}" if timed else "-",
                    ", ".join(devices),
                    result["scale"],
                    f"[{result['name']}]({result['name']}/README.md)",
                ]
                rows.append((-mean(averages), minutes, cells))
    if not rows:
        return INDEX + "No page has been sent yet: no number of a paper has been reproduced.\n"
    head = ["arm", "STS", "seeds", "minutes a run", "machine", "scale", "page"]
    return INDEX + markdown([head, *(cells for _, _, cells in sorted(rows))]) + "\n"
