"""The generated part of a study's page: its tables as Markdown, and the curves of a stage 1."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from common.files import writing
from eval.analyse.pictures import styles
from eval.scores import AVERAGE, markdown
from papers.differences import COLUMNS, Difference, described, holm, over_seeds
from papers.page import mean_and_deviation
from papers.study import Study
from training.curves import CLEAR

TITLES = {
    "dev": "STS-B dev",
    "sts": "STS avg.",
    "retrieval": "nDCG@10",
    "transfer": "transfer avg.",
    "words": "word content",
    "gap": "shuffled-[CLS] loss increase",
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
    """The means of every level of the first factor with its best level of the second."""
    factor, tuned_factor = study.levels
    tried = f"{tuned_factor.replace('_', ' ')}s tried (dev, first seed)"
    cells = [[factor, tried, "chosen", *(TITLES[name] for name in study.columns), "n"]]
    for (level,), group in groups_of(runs, [factor]):
        candidates, chosen = _tuning(study, group)
        dev_scores = candidates[tuned_factor] + candidates["dev"].map(": {:.2f}".format)
        cells.append(
            [
                _title(level),
                ", ".join(dev_scores),
                "-" if chosen.empty else chosen[tuned_factor].iloc[0],
                *(mean_and_deviation(chosen[name], missing="not run") for name in study.columns),
                str(len(chosen)),
            ]
        )
    yield cells


def _tuning(study: Study, runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of the runs of one level, those of the first seed, and the scored ones of the best level."""
    _, tuned_factor = study.levels
    candidates = runs[runs["seed"] == runs["seed"].mode()[0]]  # only the first has all levels
    best = candidates.loc[candidates["dev"].idxmax(), tuned_factor]
    return candidates, runs[(runs[tuned_factor] == best) & runs["sts"].notna()]


def _title(level: str) -> str:
    return level.replace("-mini", "", 1)


@dataclass(frozen=True)
class Comparison:
    """Two arms in one figure of their runs: `arm` minus `against`, `at` some other levels."""

    name: str
    arm: str
    at: str
    against: str
    difference: Difference


def comparisons(study: Study, runs: pd.DataFrame) -> Iterator[Cells]:
    """All comparisons of a study, a table per figure."""
    tables: dict[str, Cells] = {}
    for one, p in compared(study, runs):
        header = [TITLES[one.name], "at", "minus", *COLUMNS]
        table = tables.setdefault(one.name, [header])
        table.append([one.arm, one.at, one.against, *described(one.difference, p)])
    yield from tables.values()


def compared(study: Study, runs: pd.DataFrame) -> list[tuple[Comparison, float]]:
    """All comparisons of a study, with p adjusted over all of them."""
    found: list[Comparison] = []
    for name in ("sts", "retrieval", "transfer", "words"):
        scored = runs[runs[name].notna()]
        if name in study.columns and len(scored):
            found += _against_tuned(study, name, scored)
            found += effects_on(study, name, scored)
            for arm, against in study.pairs:
                arms = [", ".join(levels.values()) for levels in (arm, against)]
                difference = _difference(name, scored, list(study.levels), arm, against)
                found.append(Comparison(name, arms[0], "pair", arms[1], difference))
    return list(zip(found, holm([one.difference.p for one in found]), strict=True))


def with_levels(runs: pd.DataFrame, levels: Mapping[str, str]) -> pd.DataFrame:
    """The runs with these levels, one for each of some factors."""
    return runs[(runs[list(levels)] == pd.Series(levels)).all(axis=1)]


def _difference(
    name: str,
    runs: pd.DataFrame,
    factors: Sequence[str],
    arm: Mapping[str, str],
    against: Mapping[str, str],
) -> Difference:
    """The difference of two arms in a figure, over runs that agree in the other factors.

    Pairs of one seed are averaged first, since they are not independent.
    """
    agree = [factor for factor in factors if factor not in arm]
    sides = [
        with_levels(runs, levels).set_index([*agree, "seed"])[name] for levels in (arm, against)
    ]
    return over_seeds((sides[0] - sides[1]).dropna().groupby("seed").mean())


def _against_tuned(study: Study, name: str, runs: pd.DataFrame) -> list[Comparison]:
    """Every level of the first factor, with its best level of the second, minus one of them."""
    if not study.against:
        return []
    factor, _ = study.levels
    chosen = pd.concat([_tuning(study, group)[1] for _, group in groups_of(runs, [factor])])
    found = []
    for level in chosen[factor].unique():
        arm, against = {factor: level}, {factor: study.against}
        difference = _difference(name, chosen, [factor], arm, against)
        if level != study.against and difference.seeds > 1:
            words = _title(level), "best rate", _title(study.against)
            found.append(Comparison(name, *words, difference))
    return found


def effects_on(study: Study, name: str, runs: pd.DataFrame) -> list[Comparison]:
    """Each level of a factor minus its first level, by the runs that differ in nothing else.

    An effect is a factor, and the factors whose levels have lines of their own. The interval over
    the seeds does not cover those of a stage 1 that has one run.
    """
    found = []
    compared = set()
    for factor, *at in study.effects:
        for where, group in groups_of(runs, at):
            if (factor, *group.index) in compared:  # `at` has one level here
                continue
            compared.add((factor, *group.index))
            first, *others = group[factor].unique()
            for level in others:
                levels = {factor: level}, {factor: first}
                difference = _difference(name, group, list(study.levels), *levels)
                words = f"{factor} {level}", ", ".join(where) or "all", first
                found.append(Comparison(name, *words, difference))
    return found


def last_losses(study: Study, runs: pd.DataFrame) -> Iterator[Cells]:
    """The last evaluation of each stage 1, and after how many tokens [CLS] clearly mattered.

    Each seed has a line.
    """
    titles = ["own [CLS]", "another's [CLS]", "increase", "MLM loss", "tokens"]
    cells = [["stage 1", *titles, f"increase of {CLEAR} after"]]
    several = runs["seed"].nunique() > 1
    for (*levels, seed), evaluations in groups_of(runs, [*study.levels, "seed"]):
        if several:
            levels.append(f"seed {seed}")
        last = evaluations.iloc[-1]
        losses = [f"{last[name]:.3f}" for name in ("own", "other", "gap", "mlm")]
        clear = evaluations[evaluations["gap"] >= CLEAR]
        reached = "not reached" if clear.empty else f"{clear['tokens'].iloc[0]:,} tokens"
        cells.append([", ".join(levels), *losses, f"{last['tokens']:,}", reached])
    yield cells


TABLES = {"means": means, "tuned": tuned, "comparisons": comparisons, "last losses": last_losses}


def draw_increases(
    study: Study, spec: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], path: Path
) -> None:
    """Draw the loss increase of each stage 1 against the tokens that it has read.

    `spec` has a `title`, the names of the axes, `x` and `y`, and the levels that are `named`, with
    their words in the legend; the others are grey.
    """
    figure = Figure(figsize=(5.4, 4.6), layout="constrained")  # readable at 400 pixels
    figure.suptitle("\n".join(wrap(spec["title"], 52)), fontsize=12)
    axes = figure.subplots()
    looks = styles(spec["named"])
    for level, label in spec["named"].items():
        looks[level].update(label=label, zorder=3)
    for (level, _), evaluations in groups_of(pd.DataFrame(rows), [*study.levels, "seed"]):
        look = looks.get(level, {"label": "other settings", "color": "0.65"})
        axes.plot(evaluations["tokens"], evaluations["gap"], **look)
    axes.axhline(0, color="0.3", linewidth=0.8, zorder=0)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(alpha=0.3)
    axes.set_xlabel(spec["x"], fontsize=11)
    axes.set_ylabel(spec["y"], fontsize=11)
    lines, names = axes.get_legend_handles_labels()
    legend = dict(zip(names, lines, strict=True))  # each of the grey lines has the same name
    figure.legend(legend.values(), legend, loc="outside lower center", frameon=False)
    with writing(path) as part:
        figure.savefig(part, dpi=200, format="png")
