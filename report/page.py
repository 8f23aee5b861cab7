"""Render the page: sections and style in one self-contained HTML text."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from eval.analyse.geometry import ABOVE, lines
from eval.compare.intervals import RESAMPLES, SEED
from report import figures
from report.measures import Measured, Texts
from report.runs import RunFolder, facts, findings
from report.score_table import BEST, TIED, Row, headline, scored_differently

_FOLDER = Path(__file__).parent
_PAGES = Environment(
    loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def page(runs: Sequence[RunFolder], rows: Sequence[Row], texts: Texts, measured: Measured) -> str:
    """HTML of the report.

    Its Content-Security-Policy forbids all connections and scripts, so text that is not escaped by mistake can do no
    harm.
    """
    labels = [run.label for run in runs]
    columns = [facts(run.record) for run in runs]
    by_name = {name: [column[name] for column in columns] for name in columns[0]}
    measurements = [*measured.results.values(), *measured.neighbours.values()]
    present = {number for by_run in measurements for number in by_run}
    return _PAGES.get_template("page.html.j2").render(
        labels=labels,
        colours=len(figures.COLOURS),
        markers=len(figures.MARKERS),
        facts=[(name, cells) for name, cells in by_name.items() if len(runs) == 1 or len({*cells}) > 1],
        shared=[(name, cells[0]) for name, cells in by_name.items() if len(runs) > 1 and len({*cells}) == 1],
        curves=figures.curves(labels, [run.history for run in runs]),
        headlines=[
            *headline(labels, rows),
            *scored_differently(runs),
            *(f"{run.label}: {words}" for run in runs for words in findings(run) if words),
        ],
        scores=[(f"{row.key}{'' if row.comparable else ' *'}", row.cells) for row in rows],
        comparable=all(row.comparable for row in rows),
        resamples=RESAMPLES,
        seed=SEED,
        best=BEST,
        tied=TIED,
        without={
            "log": [run.label for run in runs if not run.history],
            "scores": [run.label for run in runs if run.scores is None],
            "interval": any(cell and cell.interval is None for row in rows for cell in row.cells),
            "encoder": [label for number, label in enumerate(labels) if present and number not in present],
        },
        above=ABOVE,
        charts=figures.geometry(labels, measured.results, texts),
        numbers=[(title, cells) for title, *cells in lines(measured.by_run(len(runs)))],
        texts=texts,
        measured=measured,
        neighbours=[(query, _lists(by_run, len(runs))) for query, by_run in measured.neighbours.items()],
        style=Markup((_FOLDER / "style.css").read_text(encoding="utf-8")),
    )


def _lists(by_run: dict[int, list[tuple[str, float]]], runs: int) -> list[list[tuple[str, float, bool]]]:
    """For each run the neighbours as sentence, cosine, and whether no other run lists it."""
    times = Counter(sentence for nearest in by_run.values() for sentence, _ in nearest)
    alone = len(by_run) > 1
    return [[(text, cosine, alone and times[text] == 1) for text, cosine in by_run.get(run, [])] for run in range(runs)]
