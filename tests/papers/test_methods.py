"""The table of methods, and the list of what one lacks."""

import functools
import sys

import models.objectives
from papers import methods


def test_a_new_method_is_told_what_it_lacks(tmp_path, monkeypatch, capsys):
    (tmp_path / "newcomer.py").write_text(
        '"""Newcomer: nothing new."""\nfrom models.objectives.simcse import SimCSE\n'
        "\n\nclass Newcomer(SimCSE):\n    pass\n"
        '\n\nRECORD = {"id": "newcomer-bert-base", "backbone": "bert-base-uncased",\n'
        '          "scores": [{"source": "Newcomer, table 1", "values": {"Avg.": 12.34}}]}\n'
        "METHOD = Newcomer(published=[RECORD])\n"
    )
    monkeypatch.setattr(methods, "read_yaml", functools.cache(methods.read_yaml))
    monkeypatch.setattr(models.objectives, "__path__", [*models.objectives.__path__, str(tmp_path)])
    table = methods.methods_table()
    line = next(line for line in table.splitlines() if line.startswith("| ESimCSE "))
    assert "78.27 (esimcse-bert-base)" in line and "`esimcse-roberta-base`" in line
    assert "12.34 (newcomer-bert-base)" in table
    methods.main(["--check", "newcomer"])
    sys.modules.pop("models.objectives.newcomer")
    lines = capsys.readouterr().out.splitlines()
    pages = ["PAPERS.md", "README.md", "docs/methods.md"]
    files = ["models/objectives/newcomer.py", "configs/", "tests/models/test_newcomer.py", *pages]
    assert [line.split(":")[0] for line in lines] == files
    methods.main(["--check", "esimcse"])
    assert capsys.readouterr().out == "esimcse lacks nothing\n"
