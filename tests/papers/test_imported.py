"""Runs that are known only from the file of the same table: they count, and are not run again."""

import json
import shutil
from pathlib import Path, PurePath

import pytest

from common.errors import BadInput
from eval.scores import Key
from papers import specification
from papers.imported import ImportedRun, read_imported
from papers.plans import Choice
from papers.results import is_imported

RESULTS = Path(__file__).parents[2] / "results"
DEV = Key("STS-B", "dev", "test", "spearman")


@pytest.fixture
def elsewhere(runner, filled, tmp_path):
    """The table of a first seed, whose runs are gone."""
    filled("--seeds", "0")
    shutil.rmtree(tmp_path / "runs")
    runner.asked.clear()
    return tmp_path / "results" / "infocse-5-mini.json"


def test_what_is_known_is_not_run_again_and_counts(elsewhere, runner, filled, capsys):
    assert [row["ours_runs"] for row in filled("--seeds", "0", "--collect")] == [1] * 3
    rows = filled("--seeds", "0", "1")
    assert [flags["seed"] for flags in runner.asked] == ["1"] * 3
    assert [(row["ours"], row["ours_runs"]) for row in rows] == [(80.5, 2)] * 3
    assert rows[0]["provenance"][0]["steps"] == 4 and rows[0]["by_seed"] == {0: 80.0, 1: 81.0}
    capsys.readouterr()
    filled("--seeds", "0", "1", "--list")
    assert capsys.readouterr().out.count("2 of 2 finished") == 3


def test_a_run_whose_figures_are_not_all_known_is_run(elsewhere, runner, filled):
    rows = json.loads(elsewhere.read_text())
    elsewhere.write_text(json.dumps([row | {"task": "SICK-R"} for row in rows]))
    assert [row["ours"] for row in filled("--seeds", "0")] == [80.0] * 3
    assert len(runner.asked) == 3


def test_a_run_that_is_here_is_taken_as_it_is_here(elsewhere, filled):
    rows = json.loads(elsewhere.read_text())
    elsewhere.unlink()
    filled("--seeds", "0")
    elsewhere.write_text(json.dumps([row | {"by_seed": {"0": 1.0}} for row in rows]))
    assert [row["ours"] for row in filled("--seeds", "0")] == [80.0] * 3


NO_TABLE = "not a results table"


@pytest.mark.parametrize("change", [{"by_seed": {"0": "high"}}, {"by_seed": {"7": 80.0}}, {"provenance": {"0": {}}}])
def test_a_damaged_row_is_refused(elsewhere, change):
    rows = json.loads(elsewhere.read_text())
    elsewhere.write_text(json.dumps([rows[0] | change]))
    with pytest.raises(BadInput, match=NO_TABLE):
        read_imported(elsewhere)


OTHERS = {
    "{": "cannot be read as",
    "{}": NO_TABLE,
    "[1]": NO_TABLE,
}


@pytest.mark.parametrize(("content", "said"), OTHERS.items(), ids=range(3))
def test_a_file_of_another_kind_is_refused(tmp_path, content, said):
    path = tmp_path / "known.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=f"known.json: .*{said}.*give another --output"):
        read_imported(path)


def test_sets_that_are_not_here_need_not_be_known(tmp_path):
    """InfoCSE's BEIR table, filled elsewhere with the sets that were there."""
    table = specification.read("infocse-3")
    keys = [column.key for column in table.columns]
    run = ImportedRun({}, {key: 1.0 for key in keys if key.task == "scifact"})
    choice = Choice(data_dir=str(tmp_path), imported={"a": run})
    assert is_imported(tmp_path / "a", choice, table.columns)
    for name, known in (("scifact", True), ("nfcorpus", False)):
        (tmp_path / "beir" / name).mkdir(parents=True)
        assert is_imported(tmp_path / "a", choice, table.columns) is known


def test_figures_of_runs_that_are_gone_are_not_overwritten(filled, runner, tmp_path):
    table = tmp_path / "results" / "infocse-5-mini.json"
    filled("--seeds", "0", "1")
    filled("--seeds", "0")  # nothing is lost: the runs are here
    filled("--seeds", "0", "1")
    shutil.rmtree(tmp_path / "runs")
    held, asked = table.read_text(), len(runner.asked)
    for flags in (["0"], ["0", "1", "--rows", "InfoCSE"]):
        with pytest.raises(BadInput, match=r"has figures of \d runs that are not in .* and would be lost"):
            filled("--seeds", *flags)
        assert table.read_text() == held and len(runner.asked) == asked
    filled("--seeds", "0", f"--output={tmp_path / 'elsewhere'}")
    shutil.rmtree(tmp_path / "runs")
    assert filled("--page") == json.loads(table.read_text()) == json.loads(held)
    table.write_text("[]")
    with pytest.raises(BadInput, match="does not have the rows and columns of infocse-5"):
        filled("--page")
    table.write_text(held)
    assert [row["ours"] for row in filled("--seeds", "0", "1", "2")] == [81.0] * 3
    table.write_text("[1]")
    with pytest.raises(BadInput, match=NO_TABLE):
        filled("--seeds", "0")


COMMITTED = sorted(path for name in specification.names() for path in RESULTS.glob(f"{name}-mini.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_tables_are_read_and_fill_the_same_rows_again(path):
    """A later version must find a run by the name and the keys that an earlier one wrote."""
    rows = json.loads(path.read_text())
    imported = read_imported(path)
    figures = {(PurePath(row["provenance"][seed]["run"]).name, row["task"], row["split"], row["metric"]): value
               for row in rows for seed, value in row["by_seed"].items()}  # fmt: skip
    assert figures and figures == {
        (name, key.task, key.split, key.metric): value
        for name, run in imported.items() for key, value in run.figures.items()
    }  # fmt: skip
    table = specification.read(path.stem.removesuffix("-mini"))
    assert {(row["label"], row["column"]) for row in rows} == {
        (row.label, column.name) for row in table.rows for column in table.columns
    }
