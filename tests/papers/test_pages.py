"""Every page of results/ is that of its JSON."""

import shutil

from papers import study_page
from papers.__main__ import main
from tests.sources import ROOT


def test_all_pages_are_those_of_their_json(tmp_path, monkeypatch):
    monkeypatch.setattr(study_page, "draw_increases", lambda *_: None)
    results = tmp_path / "results"
    shutil.copytree(ROOT / "results", results)
    rows = main(["--page", f"--output={results}"])
    assert len(rows) > 1000
    for path in results.glob("*.md"):
        assert path.read_text(encoding="utf-8") == (ROOT / "results" / path.name).read_text(
            encoding="utf-8"
        ), path.name
