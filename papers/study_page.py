"""The tables of a study's page, each from the study and its rows, and the curves of its runs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from textwrap import wrap
from typing import Any

from matplotlib.figure import Figure
from scipy import stats

from common.files import writing
from eval.analyse.pictures import styles
from eval.compare.intervals import welch
from eval.compare.sides import Score
from eval.scores import AVERAGE, markdown
from papers.page import mean_and_std
from papers.study import Study
from training.curves import CLEAR

FIGURES = {
    "dev": "STS-B dev",
    "sts": "STS avg.",
    "search": "nDCG@10",
    "transfer": "transfer avg.",
    "gap": "gap, nats",
}
Rows = Sequence[Mapping[str, Any]]
Body = list[list[str]]


def tables(study: Study, rows: Rows) -> str:
    return "\n\n".join(
        markdown(body) for name in study.tables for body in TABLES[name](study, rows)
    )


def grouped(rows: Rows, *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Rows by their values of `names`, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def figure(row: Mapping[str, Any], name: str) -> float | None:
    """A figure of a run, or the average of its tasks."""
    value = row.get(name)
    return value.get(AVERAGE) if isinstance(value, Mapping) else value


def figures(rows: Rows, name: str) -> list[float]:
    return [value for row in rows if (value := figure(row, name)) is not None]


def _cell(rows: Rows, name: str, missing: str) -> str:
    """Mean and standard deviation of a figure, and of how many runs unless all have it."""
    values = figures(rows, name)
    return mean_and_std(values, missing) + (
        f" (n = {len(values)})" if 0 < len(values) < len(rows) else ""
    )


def _title(level: str) -> str:
    return level.replace("-mini", "", 1)


def means(study: Study, rows: Rows) -> Iterator[Body]:
    """Mean and standard deviation over the seeds for every combination of levels."""
    body = [[*study.levels, *(FIGURES[name] for name in study.columns), "n"]]
    for levels, group in grouped(rows, *study.levels).items():
        body.append(
            [*levels, *(_cell(group, name, "-") for name in study.columns), str(len(group))]
        )
    yield body


def search(study: Study, rows: Rows) -> Iterator[Body]:
    """For each level of the first factor, the levels of the second that were tried, and the means
    with the best one.

    Then each of them minus the level of `against`, with Welch's 95 % interval over at least two
    runs of each.
    """
    factor, tried = study.levels
    titles = [FIGURES[name] for name in study.columns]
    body = [[factor, f"{tried.replace('_', ' ')}s tried (dev, first seed)", "chosen", *titles, "n"]]
    chosen: dict[str, Rows] = {}
    for (level,), group in grouped(rows, factor).items():
        first = Counter(row["seed"] for row in group).most_common(1)[0][
            0
        ]  # every other seed has one level
        of_first = [row for row in group if row["seed"] == first]
        best = max(of_first, key=lambda row: row["dev"])[tried]
        chosen[level] = [
            row for row in group if row[tried] == best and figure(row, "sts") is not None
        ]
        said = ", ".join(f"{row[tried]}: {row['dev']:.2f}" for row in of_first)
        cells = [_cell(chosen[level], name, "not run") for name in study.columns]
        body.append(
            [_title(level), said, best if chosen[level] else "-", *cells, str(len(chosen[level]))]
        )
    yield body
    columns, base = study.columns[1:], chosen.pop(study.against["level"], [])
    body = [[study.against["title"], *(FIGURES[name] for name in columns)]]
    for level, group in chosen.items():
        cells = [_difference(group, base, name) for name in columns]
        body += [[_title(level), *cells]] if any(cell != "-" for cell in cells) else []
    if len(body) > 1:
        yield body


def _difference(rows: Rows, base: Rows, name: str) -> str:
    sides = [figures(part, name) for part in (rows, base)]
    if any(
        len(values) < max(2, len(part)) for values, part in zip(sides, (rows, base), strict=True)
    ):
        return "-"
    ours, others = map(Score.over, sides)
    low, high = welch(ours, others)
    return f"{ours.mean - others.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def effects(study: Study, rows: Rows) -> Iterator[Body]:
    names = [
        name
        for name in study.columns
        if name in ("sts", "search", "transfer") and figures(rows, name)
    ]
    return (effects_on(name, study.effects, rows) for name in names)


def effects_on(name: str, comparisons: Sequence[Sequence[str]], rows: Rows) -> Body:
    """Each level of a factor against its first level: mean paired difference of a figure, and its
    interval.

    A comparison is a factor, and the factors whose levels have lines of their own. The two runs of
    a pair differ only in that factor. Pairs of one seed are averaged first, since they are not
    independent; the interval is Student's t interval over the seeds. It does not cover the seeds of
    a stage 1 that has one run.
    """
    rows, seen = [row for row in rows if name in row], set()
    factors = list(dict.fromkeys(factor for comparison in comparisons for factor in comparison))
    body = [["factor", "at", "against", f"{FIGURES[name]}, points", "95 % interval", "seeds"]]
    for factor, *at in comparisons:
        for where, group in grouped(rows, *at).items():
            levels = [level for (level,) in grouped(group, factor)]
            if (
                compared := (factor, *map(id, group))
            ) in seen:  # where only these rows were compared before
                continue
            seen.add(compared)
            for level in levels[1:]:
                by_seed = _pairs(
                    group,
                    factor,
                    [other for other in factors if other != factor],
                    level,
                    levels[0],
                    name,
                )
                cells = [
                    f"{factor} {level}",
                    ", ".join(where) or "all",
                    levels[0],
                    *_interval(by_seed),
                ]
                body.append([*cells, str(len(by_seed))])
    return body


def _pairs(
    rows: Rows, factor: str, others: Sequence[str], level: str, first: str, name: str
) -> list[float]:
    """The mean difference over the pairs of each seed."""
    values = {
        (row[factor], *(row[other] for other in others), row["seed"]): figure(row, name)
        for row in rows
    }
    by_seed: dict[int, list[float]] = {}
    for (of_run, *key), value in values.items():
        if of_run == level and (first, *key) in values:
            by_seed.setdefault(key[-1], []).append(value - values[first, *key])
    return [fmean(differences) for differences in by_seed.values()]


def _interval(differences: Sequence[float]) -> tuple[str, str]:
    if not differences:
        return "-", "-"
    mean = fmean(differences)
    if len(differences) < 2:
        return f"{mean:+.2f}", "-"
    half = float(stats.sem(differences) * stats.t.ppf(0.975, len(differences) - 1))
    return f"{mean:+.2f}", f"{mean - half:+.2f} to {mean + half:+.2f}"


def last_gap(study: Study, rows: Rows) -> Iterator[Body]:
    """The last evaluation of each stage 1, and the number of tokens after which its gap was clear."""
    body = [
        [
            "stage 1",
            "own [CLS]",
            "a neighbour's",
            "gap, nats",
            "MLM loss",
            "tokens",
            f"gap of {CLEAR} after",
        ]
    ]
    for levels, group in grouped(rows, *study.levels).items():
        clear = next(
            (f"{row['tokens']:,} tokens" for row in group if row["gap"] >= CLEAR), "not reached"
        )
        losses = [f"{group[-1][key]:.3f}" for key in ("own", "other", "gap", "mlm")]
        body.append([", ".join(levels), *losses, f"{group[-1]['tokens']:,}", clear])
    yield body


def gradients(study: Study, rows: Rows) -> Iterator[Body]:
    """Means over the seeds of both losses and their gradients at every evaluation; then how much
    the gradients move.

    Both are those before weighting; a loss is its mean over the steps since the evaluation before.
    """
    parts = [("contrastive", "aux_mlm"), ("eval_gradient_contrastive", "eval_gradient_aux_mlm")]
    titles = ["contrastive", "auxiliary", "auxiliary / contrastive"]
    body = [
        [
            *study.levels,
            "step",
            *(f"{title} {part}" for part in ("loss", "gradient") for title in titles),
            "n",
        ]
    ]
    moves = [[*study.levels, "contrastive gradient moves by", "auxiliary gradient moves by", "n"]]
    for levels, group in grouped(rows, *study.levels).items():
        runs = [row["gradients"] for row in group]
        for looks in zip(*runs, strict=True):
            cells = []
            for first, second in parts:
                values = [(look[first], look[second], look[second] / look[first]) for look in looks]
                cells += [f"{fmean(some):.3g}" for some in zip(*values, strict=True)]
            body.append([*levels, str(looks[0]["step"]), *cells, str(len(looks))])
        changes = [
            [100 * _change([look[name] for look in run]) for run in runs] for name in parts[1]
        ]
        moves.append(
            [*levels, *(f"{mean_and_std(some, '-')} %" for some in changes), str(len(group))]
        )
    yield from (body, moves)


def _change(norms: Sequence[float]) -> float:
    """Mean absolute change from one evaluation to the next, as a share of the mean."""
    return fmean(abs(after - before) for before, after in pairwise(norms)) / fmean(norms)


def adapted(study: Study, rows: Rows) -> Iterator[Body]:
    """nDCG@10 on judged queries by initial model (`start`) and method: mean and deviation over the seeds of a set."""
    sets = [name for (name,) in grouped(rows, "set")]
    body = [["start", "method", *sets, "mean", "mean gain", "n"]]
    for (start,), of_start in grouped(rows, "start").items():
        # After stage 1, each seed has another initial model.
        before = [
            list({row["real"]["start"] for row in of_start if row["set"] == name}) for name in sets
        ]
        body.append([start, "as it is", *_by_set(before), "", ""])
        for (method,), group in grouped(of_start, "method").items():
            by_set = [[row["real"] for row in group if row["set"] == name] for name in sets]
            gains = [
                fmean(real["result"] - real["start"] for real in some) for some in by_set if some
            ]
            counts = sorted({len(some) for some in by_set if some})
            cells = _by_set([[real["result"] for real in some] for some in by_set])
            n = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
            body.append([start, method, *cells, f"{fmean(gains):+.2f}", n])
    yield body


def _by_set(values: list[list[float]]) -> list[str]:
    """One cell per set, and the mean over sets if all have values."""
    mean = f"{fmean(map(fmean, values)):.2f}" if all(values) else "-"
    return [*(mean_and_std(some, "-") for some in values), mean]


TABLES = {
    "means": means,
    "search": search,
    "effects": effects,
    "last gap": last_gap,
    "adapted": adapted,
}
TABLES |= {"gradients": gradients}


def draw(study: Study, rows: Rows, path: Path) -> None:
    """Draw the curves in the rows from 0, or the gap at their evaluations, as means over the runs
    of a line.

    `study.figure` has a `title`, the names of the axes, `x` and `y`, the factor `line` whose levels
    are lines and, optionally, the factor `panel`, and the lines that are `named`; the others are
    grey.
    """
    spec = study.figure
    panels = grouped(rows, *([spec["panel"]] if "panel" in spec else []))
    picture = Figure(
        figsize=(5.4, 4.6 if len(panels) == 1 else 6.4), layout="constrained"
    )  # readable at 400 pixels
    picture.suptitle("\n".join(wrap(spec["title"], 52)), fontsize=12)
    axes = picture.subplots(
        -(-len(panels) // 2), min(2, len(panels)), squeeze=False, sharex=True, sharey=True
    )
    style = styles(spec.get("named") or dict.fromkeys(row[spec["line"]] for row in rows))
    others = {"color": "0.65", "label": "other settings"}
    for axis, (title, of_panel) in zip(axes.flat, panels.items(), strict=True):
        for (name,), group in grouped(of_panel, spec["line"]).items():
            points: dict[float, list[float]] = {}
            for row in group:
                for x, y in row.get("curve") or [(row["tokens"], row["gap"])]:
                    points.setdefault(x, []).append(y - row["curve"][0][1] if "curve" in row else y)
            curve = [(x, fmean(values)) for x, values in sorted(points.items())]
            axis.plot(
                *zip(*curve, strict=True),
                **({"label": name} | style[name] if name in style else others),
            )
        axis.set_title("\n".join(wrap(", ".join(title), 26)), fontsize=10)
        axis.axhline(0, color="0.3", linewidth=0.8, zorder=0)
        axis.locator_params(axis="x", nbins=4)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel(spec["x"], fontsize=11)
    picture.supylabel(spec["y"], fontsize=11)
    legend = {
        label: line
        for axis in axes.flat
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = 3 if max(map(len, legend)) < 20 else 1
    picture.legend(
        legend.values(), legend, loc="outside lower center", ncols=columns, frameon=False
    )
    with writing(path) as part:
        picture.savefig(part, dpi=200, format="png")
