"""Every page of results/ is that of its JSON, and so are the numbers of the README."""

import re
import shutil

import pytest

from papers import study_page
from papers.__main__ import main
from papers.summary import TEMPLATES
from tests.sources import ROOT

NUMBER = re.compile(r"(?<![\d.,])[+-]?\d{1,2}\.\d\d(?!\d|\.\d)")
VERDICT = re.compile(r"\b(gains?|loses|harms|costs|improves|beats|outperforms)\b")


def test_all_pages_are_those_of_their_json(tmp_path, monkeypatch):
    monkeypatch.setattr(study_page, "draw_increases", lambda *_: None)
    shutil.copytree(ROOT / "results", tmp_path / "results")
    shutil.copy(ROOT / "README.md", tmp_path)
    for page in tmp_path.glob("results/*.md"):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"(made by .*? -->\n).*?(<!-- end)", r"\1\2", text, flags=re.DOTALL)
        page.write_text(text)
    rows = main(["--page", f"--output={tmp_path / 'results'}"])
    assert len(rows) > 1000
    for made in [tmp_path / "README.md", *tmp_path.glob("results/*.md")]:
        before = (ROOT / made.relative_to(tmp_path)).read_text(encoding="utf-8")
        assert made.read_text(encoding="utf-8") == before, made.name


@pytest.mark.parametrize("name", sorted(path.name for path in TEMPLATES.glob("*.md")))
def test_numbers_of_a_page_and_verdicts_of_a_summary_are_computed(name):
    """What the papers say, the first cell of a line, is not ours."""
    written = (TEMPLATES / name).read_text(encoding="utf-8")
    written = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", written, flags=re.DOTALL)
    written = re.sub(r"^\| [^|]*", "", written, flags=re.MULTILINE)
    assert NUMBER.findall(written) == []
    assert VERDICT.findall(written) == [] or name not in ("results.md", "root.md")


def test_the_readme_has_no_result_outside_its_computed_part():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"<!-- numbers:.*?<!-- end of numbers -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|Python 3\.\d+ to 3\.\d+", "", text, flags=re.DOTALL)
    assert NUMBER.findall(text) == []
