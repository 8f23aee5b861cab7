"""The sections of the page: what a run is, how it trained, how it scores, and what it finds near a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from report.blocks import PREPARE, heads, missing, table
from report.charts import Axis, Series, chart, finite
from report.curves import series
from report.geometry import without_encoder
from report.markup import EMPTY, Markup, joined, tag
from report.measures import Measured, Texts
from report.reading import in_words
from report.runs import RunFolder, facts
from report.score_table import BEST, RESAMPLES, SEED, TIED, Cell, Row

WIDE_RANGE = 20  # largest over smallest value from which on a loss is drawn on a logarithmic axis


def about(runs: Sequence[RunFolder]) -> Markup:
    """Facts of the runs, a line a fact."""
    columns = [facts(run.record) for run in runs]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return table(heads(runs), rows, name="facts")


def training(runs: Sequence[RunFolder]) -> Markup:
    """A chart for every logged quantity, all runs in it; the dev score first."""
    found = [series(run.history) for run in runs]
    names = sorted({name for one in found for name in one}, key=lambda name: (not name.endswith("_spearman"), name))
    charts = []
    for name in names:
        lines = [Series(i, runs[i].label, finite(list(zip(*one[name], strict=True))))
                 for i, one in enumerate(found) if name in one]  # fmt: skip
        title = joined(tag("code", name), " (dev score)" if name.endswith("_spearman") else "")
        charts.append(chart(title, Axis("optimizer step", margin=0.02), _height(name, lines), lines))
    without = [run.label for run in runs if not run.history]
    note = missing("No log.jsonl with a line in it: ", ", ".join(without), ".") if without else EMPTY
    text = tag("p", "Loss terms are raw, before their weights. Point at a mark to read its value.")
    read = [tag("p", f"{run.label}: {words}.") for run in runs if (words := in_words(run.history))]
    return joined(text, *read, note, tag("div", *charts, class_="charts"))


def _height(name: str, lines: Sequence[Series]) -> Axis:
    if name.endswith("_spearman"):
        return Axis("Spearman x 100")
    values = [value for line in lines for _, value in line.points]
    log = bool(values) and min(values) > 0 and max(values) > WIDE_RANGE * min(values)
    return Axis("value", log=log)


def scores(runs: Sequence[RunFolder], rows: Sequence[Row]) -> Markup:
    """All tasks, runs side by side."""
    without = [run.label for run in runs if run.scores is None]
    note = EMPTY
    if without:
        command = tag("code", "python -m eval RUN --tasks sts --output RUN/scores.json")
        note = missing("No scores: ", ", ".join(without), ". ", command, " writes them.")
    if not rows:
        return note
    caption = (
        f"Figures x 100, below each its 95 % interval: {RESAMPLES:,} bootstrap resamples of the test examples (seed "
        f"{SEED}), so it speaks of this model on these examples and not of other seeds. {BEST}: the highest of the "
        f"row. {TIED}: the interval of the difference to the best, both resampled together, holds 0."
    )
    if any(cell and cell.interval is None for row in rows for cell in row.cells):
        caption += " No interval: the examples' figures (.items.npz beside the scores) are missing or of other scores."
    if not all(row.comparable for row in rows):
        caption += " * not on the same examples or tasks in all runs, so no best is marked."
    body = [[f"{row.key}{'' if row.comparable else ' *'}", *map(_score, row.cells)] for row in rows]
    return joined(note, table(heads(runs), body, caption))


def _score(cell: Cell | None) -> Markup:
    if cell is None:
        return tag("span", "missing", class_="quiet")
    interval = tag("small", "{:.2f} to {:.2f}".format(*cell.interval)) if cell.interval else EMPTY
    mark = tag("em", cell.mark) if cell.mark else EMPTY
    value = tag("b" if cell.mark == BEST else "span", f"{cell.value:.2f}")
    return joined(value, mark, interval)


def neighbours(runs: Sequence[RunFolder], texts: Texts, measured: Measured) -> Markup:
    """The search field and the places that the page's script fills."""
    if not measured.packed:
        if not texts.searched:
            return missing("Nothing to search: the data folder has no STS-B. ", tag("code", PREPARE), " fetches it, ",
                           tag("code", "--sentences FILE"), " takes your own.")  # fmt: skip
        return missing("Nothing to search: no run has a sentence encoder.")
    count = len(measured.searched)
    cut = f"the first {count:,} of {texts.found:,}" if count < texts.found else f"{count:,}"
    error = max(one.error for one in measured.packed)
    hint = (f"Searched: {cut} distinct sentences ({texts.source}). Type a part of a sentence of the collection; a text "
            "that is not in it cannot be embedded here, because the page holds vectors and no model. Cosines are "
            f"computed in the page from vectors of {measured.packed[0].bits} bits a component, at most "
            f"{error:.1g} off.")  # fmt: skip
    if len(measured.packed) > 1:
        hint += " A bar at the left marks a neighbour that no other run lists."
    without = without_encoder(runs, measured)
    return tag(
        "div",
        tag("p", hint),
        missing("No sentence encoder in the folder: ", without, ".") if without else EMPTY,
        tag("noscript", missing("The search needs JavaScript.")),
        tag("label", "Find a sentence", for_="query"),
        tag("input", id="query", type="search", autocomplete="off", spellcheck="false"),
        tag("p", id="status", class_="quiet", role="status"),
        tag("ul", id="matches"),
        tag("h3", "Nearest to"),
        tag("p", id="picked"),
        tag("div", id="near"),
        class_="search",
    )
