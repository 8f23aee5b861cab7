"""The README and docs/methods.md list the methods that exist."""

from papers import methods
from papers.page import rewritten
from tests.sources import ROOT
from training.methods import method_names


def test_the_page_of_methods_is_that_of_the_folder():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    made = methods.table()
    assert made in page, "run python -m papers.methods"
    assert rewritten(page, "methods", "python -m papers.methods", made) == page


def test_the_readme_names_every_method():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = set(method_names())
    assert len(names) > 10
    assert {name for name in names if f"`{name}`" not in readme} == set()


def test_published_averages_stand_beside_their_configurations():
    line = next(line for line in methods.table().splitlines() if "esimcse.py" in line)
    assert "78.27 (esimcse-bert-base)" in line and "`esimcse-mini`" in line
