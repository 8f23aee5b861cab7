"""The whole page: sections, style and script in one HTML text that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from string import Template

from report import sections
from report.blocks import legend
from report.geometry import geometry
from report.markup import Markup, escaped, joined, script_json, tag
from report.measures import Measured, Texts
from report.runs import RunFolder
from report.score_table import Row

_FOLDER = Path(__file__).parent


def page(runs: Sequence[RunFolder], rows: Sequence[Row], texts: Texts, measured: Measured) -> str:
    """HTML of the report.

    The page forbids itself every connection and every script and style but its own (Content-Security-Policy with their
    hashes), so that a text that slipped through the escaping could still do nothing.

    Args:
        runs: what stands in their folders, at least one.
        rows: of the table of scores.
        texts: what the models were shown.
        measured: what came of it.
    """
    parts = {
        "runs": ("Runs", sections.about(runs)),
        "training": ("Training", sections.training(runs)),
        "scores": ("Scores", sections.scores(runs, rows)),
        "vectors": ("Geometry of the vectors", geometry(runs, texts, measured)),
        "neighbours": ("Nearest neighbours", sections.neighbours(runs, texts, measured)),
    }
    style, script = _asset("style.css"), _asset("script.js")
    return Template(_asset("template.html")).substitute(
        title=escaped("Report: " + ", ".join(run.label for run in runs)),
        keys=legend(runs),
        links=joined(*(tag("a", title, href=f"#{name}") for name, (title, _) in parts.items())),
        sections=joined(*(tag("section", tag("h2", title), body, id=name) for name, (title, body) in parts.items())),
        collection=_collection(measured),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _collection(measured: Measured) -> Markup:
    content = {"sentences": measured.searched, "runs": [one.content() for one in measured.packed]}
    return script_json(content if measured.packed else None)


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
