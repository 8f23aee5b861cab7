"""How the vectors lie: alignment and uniformity, the spectrum, the cosine by gold score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report.blocks import PREPARE, heads, missing, table
from report.charts import Axis, Series, chart
from report.markup import EMPTY, Markup, joined, tag
from report.measures import ABOVE, ANALYSES, Measured, Texts
from report.runs import RunFolder


def geometry(runs: Sequence[RunFolder], texts: Texts, measured: Measured) -> Markup:
    """The analyses that could be made: a table of their main numbers, a chart each, and what is missing."""
    results = measured.results
    notes = _missing_analyses(runs, texts, measured)
    if not results:
        return notes
    rows = []
    for name, found in results.items():
        for number, (title, form) in ANALYSES[name].headlines.items():
            values = [found[i][number] if i in found else None for i in range(len(runs))]
            rows.append([title, *("none" if value is None else format(value, form) for value in values)])
    charts = [_CHARTS[name](runs, found, texts) for name, found in results.items()]
    return joined(notes, tag("div", *charts, class_="charts"), tag("h3", "The numbers"), table(heads(runs), rows))


def _missing_analyses(runs: Sequence[RunFolder], texts: Texts, measured: Measured) -> Markup:
    notes = []
    if texts.material is None or texts.material.pairs is None:
        notes.append(missing(
            "Alignment and uniformity, and cosine by gold score, are not here: the data folder has no STS-B test set. ",
            tag("code", PREPARE), " fetches it, ", tag("code", "--data_dir"), " says where it is, ",
            tag("code", "--dev_file"), " takes pairs of your own."))  # fmt: skip
    elif "alignment_uniformity" not in measured.results and measured.results:
        notes.append(missing(f"Alignment and uniformity are not here: no pair has a gold score above {ABOVE:g}."))
    without = without_encoder(runs, measured)
    return joined(*notes, missing("No sentence encoder in the folder: ", without, ".") if without else EMPTY)


def without_encoder(runs: Sequence[RunFolder], measured: Measured) -> str:
    """The runs among others that gave no vectors; nothing where none did or all did."""
    present = {one.number for one in measured.packed}
    return ", ".join(run.label for i, run in enumerate(runs) if i not in present) if present else ""


def _alignment(runs: Sequence[RunFolder], found: dict[int, dict[str, Any]], texts: Texts) -> Markup:
    one = next(iter(found.values()))
    about = f"{texts.material.name}: {one['positives']:,} pairs with gold > {ABOVE:g}, {one['sentences']:,} sentences"
    points = [Series(i, runs[i].label, [(each["uniformity"], each["alignment"])]) for i, each in found.items()]
    x, y = Axis("uniformity (lower is better)", margin=0.2), Axis("alignment (lower is better)", margin=0.2)
    return chart(_title("Alignment against uniformity", about), x, y, points, join=False)


def _spectrum(runs: Sequence[RunFolder], found: dict[int, dict[str, Any]], texts: Texts) -> Markup:
    spectra = {i: each["spectrum"] for i, each in found.items()}
    # the last few values are often rounding and would stretch the axis; a collapsed model has none above zero
    floor = max(min(values[int(0.98 * len(values))] for values in spectra.values()), 1e-6) / 2
    lines = [Series(i, runs[i].label, [(n, value) for n, value in enumerate(values, 1) if value > floor])
             for i, values in spectra.items()]  # fmt: skip
    about = f"centred unit vectors of {next(iter(found.values()))['sentences']:,} sentences: {texts.material.source}"
    x, y = Axis("number of the singular value", margin=0.02), Axis("singular value / largest", log=True)
    return chart(_title("Singular value spectrum", about), x, y, lines)


def _by_gold(runs: Sequence[RunFolder], found: dict[int, dict[str, Any]], texts: Texts) -> Markup:
    bins = next(iter(found.values()))["bins"]
    lines = []
    for place, (i, each) in enumerate(found.items()):
        shift = 0.5 * ((place + 0.5) / len(found) - 0.5)  # side by side, so that no bar hides another
        filled = [(number + shift, one) for number, one in enumerate(each["bins"]) if one["pairs"]]
        bars = [(spot, one["lower_quartile"], one["upper_quartile"]) for spot, one in filled]
        lines.append(Series(i, runs[i].label, [(spot, one["mean"]) for spot, one in filled], bars))
    counts = ", ".join(f"{one['pairs']:,}" for one in bins)
    about = f"{texts.material.name}: mean, and bar from lower to upper quartile; pairs in the bins: {counts}"
    names = {number: f"{one['from']} to {one['to']}" for number, one in enumerate(bins)}
    x = Axis("gold score", names=names, margin=0.1)
    return chart(_title("Cosine by gold score", about), x, Axis("cosine"), lines)


def _title(title: str, about: str) -> Markup:
    return joined(title, tag("span", about, class_="quiet"))


_CHARTS = {"alignment_uniformity": _alignment, "anisotropy": _spectrum, "cosine_by_gold": _by_gold}
