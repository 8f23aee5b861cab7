"""The generated part of a study's page: its tables as Markdown, and the curves of its runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.files import writing
from eval.analyse.pictures import styles
from eval.compare.intervals import welch
from eval.compare.sides import Score
from eval.scores import AVERAGE, markdown
from papers.differences import over_seeds
from papers.page import mean_and_deviation
from papers.study import Study
from training.curves import CLEAR

TITLES = {
    "dev": "STS-B dev",
    "sts": "STS avg.",
    "search": "nDCG@10",
    "transfer": "transfer avg.",
    "gap": "gap, nats",
}
LOSSES = {
    "contrastive loss": "contrastive",
    "auxiliary loss": "aux_mlm",
    "auxiliary / contrastive loss": "loss_ratio",
    "contrastive gradient": "eval_gradient_contrastive",
    "auxiliary gradient": "eval_gradient_aux_mlm",
    "auxiliary / contrastive gradient": "gradient_ratio",
}
Cells = list[list[str]]  # of a Markdown table, the header first


def tables(study: Study, rows: Sequence[Mapping[str, Any]]) -> str:
    """All tables of a study, from the rows of its JSON file."""
    runs = figures_of(rows)
    return "\n\n".join(
        markdown(cells) for name in study.tables for cells in TABLES[name](study, runs)
    )


def figures_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows of a study, in which a figure of several tasks is their average, nan if missing."""
    runs = pd.DataFrame(rows)
    for name in TITLES:
        if name not in runs:
            runs[name] = None
        runs[name] = pd.to_numeric(runs[name].map(_average))
    return runs


def _average(figure: Any) -> float | None:
    return figure.get(AVERAGE) if isinstance(figure, Mapping) else figure


def groups_of(runs: pd.DataFrame, factors: Sequence[str]) -> Iterable[tuple[tuple, pd.DataFrame]]:
    """The runs by the levels of some factors, in order of appearance; one group without factors."""
    if not factors:
        return [((), runs)]
    return runs.groupby(list(factors), sort=False)


def means(study: Study, runs: pd.DataFrame) -> Iterator[Cells]:
    """Mean and standard deviation over the seeds for every combination of levels."""
    cells = [[*study.levels, *(TITLES[name] for name in study.columns), "n"]]
    for levels, group in groups_of(runs, list(study.levels)):
        figures = [mean_and_deviation(group[name], missing="-") for name in study.columns]
        cells.append([*levels, *figures, str(len(group))])
    yield cells


def tuned(study: Study, runs: pd.DataFrame) -> Iterator[Cells]:
    """The means of every level of the first factor with its best level of the second.

    Then each of them minus the level of `against`, with Welch's 95 % interval over at least two
    runs of each.
    """
    factor, tuned_factor = study.levels
    tried = f"{tuned_factor.replace('_', ' ')}s tried (dev, first seed)"
    cells = [[factor, tried, "chosen", *(TITLES[name] for name in study.columns), "n"]]
    chosen = {}
    for (level,), group in groups_of(runs, [factor]):
        first_seed = group["seed"].mode()[0]  # only the first seed has all levels
        candidates = group[group["seed"] == first_seed]
        best = candidates.loc[candidates["dev"].idxmax(), tuned_factor]
        scored = group[(group[tuned_factor] == best) & group["sts"].notna()]
        chosen[level] = scored
        dev_scores = candidates[tuned_factor] + candidates["dev"].map(": {:.2f}".format)
        cells.append(
            [
                _title(level),
                ", ".join(dev_scores),
                "-" if scored.empty else best,
                *(mean_and_deviation(scored[name], missing="not run") for name in study.columns),
                str(len(scored)),
            ]
        )
    yield cells
    base = chosen.pop(study.against["level"], runs.iloc[:0])
    columns = study.columns[1:]
    cells = [[study.against["title"], *(TITLES[name] for name in columns)]]
    for level, scored in chosen.items():
        differences = [_minus(scored[name], base[name]) for name in columns]
        if set(differences) != {"-"}:
            cells.append([_title(level), *differences])
    if len(cells) > 1:
        yield cells


def _title(level: str) -> str:
    return level.replace("-mini", "", 1)


def _minus(ours: pd.Series, others: pd.Series) -> str:
    """The difference of two means, unless a run lacks the figure."""
    if min(len(ours), len(others)) < 2 or ours.hasnans or others.hasnans:
        return "-"
    left, right = Score.over(ours), Score.over(others)
    low, high = welch(left, right)
    return f"{left.mean - right.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def effects(study: Study, runs: pd.DataFrame) -> Iterator[Cells]:
    """A table of effects for each score that the runs have."""
    for name in ("sts", "search", "transfer"):
        if name in study.columns and runs[name].notna().any():
            yield effects_on(name, study.effects, runs)


def effects_on(name: str, comparisons: Sequence[Sequence[str]], runs: pd.DataFrame) -> Cells:
    """Each level of a factor against its first level, by the runs that differ in nothing else.

    A comparison is a factor, and the factors whose levels have lines of their own. Pairs of one
    seed are averaged first, since they are not independent. The interval over the seeds does not
    cover those of a stage 1 that has one run.
    """
    cells = [["factor", "at", "against", f"{TITLES[name]}, points", "95 % interval", "seeds"]]
    runs = runs[runs[name].notna()]
    factors = list(dict.fromkeys(factor for comparison in comparisons for factor in comparison))
    compared = set()
    for factor, *at in comparisons:
        pair = [other for other in [*factors, "seed"] if other != factor]
        for where, group in groups_of(runs, at):
            if (factor, *group.index) in compared:  # `at` has one level here
                continue
            compared.add((factor, *group.index))
            by_level = group.pivot(index=pair, columns=factor, values=name)
            first, *others = group[factor].unique()
            for level in others:
                differences = by_level[level] - by_level[first]
                difference = over_seeds(differences.dropna().groupby("seed").mean())
                line = [f"{factor} {level}", ", ".join(where) or "all", first]
                cells.append([*line, *difference.cells(), str(difference.seeds)])
    return cells


def last_gap(study: Study, runs: pd.DataFrame) -> Iterator[Cells]:
    """The last evaluation of each stage 1, and after how many tokens its gap was clear."""
    titles = ["own [CLS]", "a neighbour's", "gap, nats", "MLM loss", "tokens"]
    cells = [["stage 1", *titles, f"gap of {CLEAR} after"]]
    for levels, evaluations in groups_of(runs, list(study.levels)):
        last = evaluations.iloc[-1]
        losses = [f"{last[name]:.3f}" for name in ("own", "other", "gap", "mlm")]
        clear = evaluations[evaluations["gap"] >= CLEAR]
        reached = "not reached" if clear.empty else f"{clear['tokens'].iloc[0]:,} tokens"
        cells.append([", ".join(levels), *losses, f"{last['tokens']:,}", reached])
    yield cells


def gradients(study: Study, runs: pd.DataFrame) -> Iterator[Cells]:
    """Both losses and their gradients at every evaluation; then how much the gradients move.

    Means over the seeds, before weighting; a loss is its mean over the steps since the evaluation
    before.
    """
    evaluations = runs.explode("gradients", ignore_index=True)
    evaluations = evaluations.join(pd.json_normalize(evaluations["gradients"].tolist()))
    evaluations["loss_ratio"] = evaluations["aux_mlm"] / evaluations["contrastive"]
    ratio = evaluations["eval_gradient_aux_mlm"] / evaluations["eval_gradient_contrastive"]
    evaluations["gradient_ratio"] = ratio
    cells = [[*study.levels, "step", *LOSSES, "n"]]
    for (*levels, step), group in groups_of(evaluations, [*study.levels, "step"]):
        figures = [f"{group[name].mean():.3g}" for name in LOSSES.values()]
        cells.append([*levels, str(step), *figures, str(len(group))])
    yield cells
    names = ["contrastive gradient", "auxiliary gradient"]
    cells = [[*study.levels, *(f"{name} moves by" for name in names), "n"]]
    for levels, group in groups_of(evaluations, list(study.levels)):
        norms = group.groupby("seed")[[LOSSES[name] for name in names]]
        moves = 100 * norms.agg(_move)
        figures = [f"{mean_and_deviation(moves[name], missing='-')} %" for name in moves]
        cells.append([*levels, *figures, str(len(moves))])
    yield cells


def _move(norms: pd.Series) -> float:
    """Mean absolute change from one evaluation to the next, as a share of the mean."""
    return norms.diff().abs().mean() / norms.mean()


def adapted(study: Study, runs: pd.DataFrame) -> Iterator[Cells]:
    """nDCG@10 on judged queries by initial model and method.

    The line `as it is` has the initial models; after a stage 1, each seed has another one.
    """
    runs["before"] = runs["real"].map(lambda score: score["start"])
    runs["after"] = runs["real"].map(lambda score: score["result"])
    runs["gain"] = runs["after"] - runs["before"]
    sets = list(runs["set"].unique())
    cells = [["start", "method", *sets, "mean", "mean gain", "n"]]
    for (start,), of_start in groups_of(runs, ["start"]):
        initial_models = of_start.drop_duplicates(["set", "before"])
        cells.append([start, "as it is", *_by_set(initial_models, "before", sets), "", ""])
        for (method,), group in groups_of(of_start, ["method"]):
            by_set = group.groupby("set")
            counts = by_set.size()
            n = " to ".join(dict.fromkeys([str(counts.min()), str(counts.max())]))
            gain = f"{by_set['gain'].mean().mean():+.2f}"
            cells.append([start, method, *_by_set(group, "after", sets), gain, n])
    yield cells


def _by_set(runs: pd.DataFrame, name: str, sets: Sequence[str]) -> list[str]:
    """A cell per set, and the mean over the sets if all have values."""
    values = [runs.loc[runs["set"] == one, name] for one in sets]
    means = pd.Series([value.mean() for value in values])
    mean = "-" if means.hasnans else f"{means.mean():.2f}"
    return [*(mean_and_deviation(value, missing="-") for value in values), mean]


TABLES = {
    "means": means,
    "tuned": tuned,
    "effects": effects,
    "last gap": last_gap,
    "adapted": adapted,
    "gradients": gradients,
}


def draw_curves(study: Study, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw how the runs of a study develop: means over the seeds, in panels.

    `study.figure` has a `title`, the names of the axes, `x` and `y`, the factor `line` whose levels
    are lines and, optionally, the factor `panel`, and the lines that are `named`; the others are
    grey.
    """
    spec = study.figure
    points = _points(pd.DataFrame(rows))
    panels = list(groups_of(points, [spec["panel"]] if "panel" in spec else []))
    height = 4.6 if len(panels) == 1 else 6.4
    figure = Figure(figsize=(5.4, height), layout="constrained")  # readable at 400 pixels
    figure.suptitle("\n".join(wrap(spec["title"], 52)), fontsize=12)
    columns = min(2, len(panels))
    axes = figure.subplots(
        -(-len(panels) // columns), columns, squeeze=False, sharex=True, sharey=True
    )
    looks = styles(spec.get("named") or points[spec["line"]].unique())
    for panel, (title, of_panel) in zip(axes.flat, panels, strict=True):
        panel.set_title("\n".join(wrap(", ".join(title), 26)), fontsize=10)
        _draw_panel(panel, of_panel, spec["line"], looks)
    for panel in axes[-1]:
        panel.set_xlabel(spec["x"], fontsize=11)
    figure.supylabel(spec["y"], fontsize=11)
    legend = {}
    for panel in axes.flat:
        lines, names = panel.get_legend_handles_labels()
        legend |= dict(zip(names, lines, strict=True))
    columns = 3 if max(map(len, legend)) < 20 else 1
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=columns, frameon=False)
    with writing(path) as part:
        figure.savefig(part, dpi=200, format="png")


def _points(runs: pd.DataFrame) -> pd.DataFrame:
    """A line for each point (`x`, `y`): the gains of a run's curve, or the gaps of a stage 1."""
    if "curve" not in runs:
        return runs.assign(x=runs["tokens"], y=runs["gap"])
    points = runs.explode("curve", ignore_index=True)
    before = points["curve"].where(~points["name"].duplicated()).ffill()  # a run's first point
    points["x"] = [x for x, _ in points["curve"]]
    points["y"] = [y - start for (_, y), (_, start) in zip(points["curve"], before, strict=True)]
    return points


def _draw_panel(axes: Axes, points: pd.DataFrame, factor: str, looks: Mapping[str, dict]) -> None:
    for (name,), group in groups_of(points, [factor]):
        curve = group.groupby("x")["y"].mean()
        look = {"label": "other settings", "color": "0.65"}
        if name in looks:
            look = {"label": name, **looks[name]}
        axes.plot(curve.index, curve, **look)
    axes.axhline(0, color="0.3", linewidth=0.8, zorder=0)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(alpha=0.3)
