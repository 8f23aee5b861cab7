"""Render the page: sections and style in one self-contained HTML text."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from eval.analyse.pictures import MARKERS, styles
from eval.compare.intervals import RESAMPLES, SEED
from report.figures import curves
from report.runs import RunFolder, facts, findings
from report.score_table import headline, score_rows, scored_differently

_FOLDER = Path(__file__).parent
_PAGES = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(runs: Sequence[RunFolder]) -> str:
    """HTML of the report.

    Its Content-Security-Policy forbids all connections and scripts, so text that is not escaped by
    mistake can do no harm.
    """
    labels, rows = [run.label for run in runs], score_rows(runs)
    table = pd.DataFrame([facts(run.record) for run in runs])
    same = (table.nunique() == 1) & (len(runs) > 1)
    headlines = [*headline(labels, rows), *scored_differently(runs)]
    for run in runs:
        headlines += [f"{run.label}: {words}" for words in findings(run)]
    return _PAGES.get_template("page.html.j2").render(
        labels=labels,
        looks=list(styles(labels).values()),
        signs=dict(zip(MARKERS, "●■▲◆▼✚✖★", strict=True)),
        facts=[(name, list(table[name])) for name in table.columns[~same]],
        shared=[(name, table[name][0]) for name in table.columns[same]],
        curves=curves(labels, [run.history for run in runs]),
        headlines=headlines,
        scores=[(str(key), cells) for key, cells in rows],
        resamples=RESAMPLES,
        seed=SEED,
        without={
            "log": [run.label for run in runs if not run.history],
            "scores": [run.label for run in runs if run.scores is None],
        },
        style=Markup((_FOLDER / "style.css").read_text(encoding="utf-8")),
    )
