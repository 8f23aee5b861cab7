"""Runs that are known only from the file of an earlier table: they count, and are not run again."""

import json
import shutil
from pathlib import Path, PurePath

import pytest

from common.errors import BadInput
from eval.scores import Key
from papers import specification
from papers.__main__ import main
from papers.imported import ImportedRun, read_imported
from papers.plans import Choice
from papers.results import is_imported

RESULTS = Path(__file__).parents[2] / "results"
DEV = Key("STS-B", "dev", "test", "spearman")


@pytest.fixture
def elsewhere(runner, filled, tmp_path):
    """The table of a first seed, whose runs are gone."""
    filled("--seeds", "0")
    written = (tmp_path / "results" / "infocse-5-mini.json").rename(tmp_path / "known.json")
    shutil.rmtree(tmp_path / "runs")
    runner.asked.clear()
    return written


def test_what_is_known_is_not_run_again_and_counts(elsewhere, runner, filled, capsys):
    assert [row["ours_runs"] for row in filled("--seeds", "0", "--collect")] == [0] * 3
    rows = filled("--seeds", "0", "1", f"--known={elsewhere}")
    assert [flags["seed"] for flags in runner.asked] == ["1"] * 3
    assert [(row["ours"], row["ours_runs"]) for row in rows] == [(80.5, 2)] * 3
    assert rows[0]["provenance"][0]["steps"] == 4 and rows[0]["by_seed"] == {0: 80.0, 1: 81.0}
    capsys.readouterr()
    filled("--seeds", "0", "1", f"--known={elsewhere}", "--list")
    assert capsys.readouterr().out.count("2 of 2 finished") == 3


def test_the_same_run_serves_another_table_and_another_precision_is_another_run(elsewhere, runner, tmp_path):
    flags = ["--backbone=mini", "--model=m", f"--runs={tmp_path / 'r'}", "--seeds=0"]
    main(["infocse-4", *flags, f"--known={elsewhere}", f"--output={tmp_path}"])
    assert [asked.get("aux_init") for asked in runner.asked] == ["encoder_top"]
    main(["infocse-4", *flags, f"--known={elsewhere}", "--float32", "--rows", "InfoCSE", f"--output={tmp_path / 'o'}"])
    assert len(runner.asked) == 2


def test_a_run_whose_figures_are_not_all_known_is_run(elsewhere, runner, filled):
    rows = json.loads(elsewhere.read_text())
    elsewhere.write_text(json.dumps([row | {"task": "SICK-R"} for row in rows]))
    assert [row["ours"] for row in filled("--seeds", "0", f"--known={elsewhere}")] == [80.0] * 3
    assert len(runner.asked) == 3


def test_a_run_that_is_here_is_taken_as_it_is_here(elsewhere, filled):
    rows = json.loads(elsewhere.read_text())
    filled("--seeds", "0")
    elsewhere.write_text(json.dumps([row | {"by_seed": {"0": 1.0}} for row in rows]))
    assert [row["ours"] for row in filled("--seeds", "0", f"--known={elsewhere}")] == [80.0] * 3


def test_several_files_are_one_and_two_that_disagree_are_refused(elsewhere, tmp_path):
    first = read_imported([elsewhere])
    assert [run.figures for run in first.values()] == [{DEV: 80.0}] * 3
    assert read_imported([elsewhere, elsewhere]) == first
    rows = json.loads(elsewhere.read_text())
    for change in ({"by_seed": {"0": 1.0}}, {"provenance": {"0": rows[0]["provenance"]["0"] | {"steps": 5}}}):
        other = tmp_path / "other.json"
        other.write_text(json.dumps([rows[0] | change]))
        with pytest.raises(BadInput, match=r"other.json: .*differs from another --known file"):
            read_imported([elsewhere, other])


NO_TABLE = "not a results table"


@pytest.mark.parametrize("change", [{"task": None}, {"by_seed": {"0": "high"}}, {"by_seed": {"7": 80.0}},
                                    {"by_seed": {"0": float("nan")}}, {"provenance": {"0": {}}}])  # fmt: skip
def test_a_damaged_row_is_refused(elsewhere, change):
    rows = json.loads(elsewhere.read_text())
    elsewhere.write_text(json.dumps([rows[0] | change]))
    with pytest.raises(BadInput, match=NO_TABLE):
        read_imported([elsewhere])


OTHERS = {
    "{": "cannot be read as",
    "{}": NO_TABLE,
    "[1]": NO_TABLE,
    "[" * 9**5: "cannot be read as",
    None: "No such file",
}


@pytest.mark.parametrize(("content", "said"), OTHERS.items(), ids=range(5))
def test_a_file_of_another_kind_is_refused(tmp_path, content, said):
    path = tmp_path / "known.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match=f"known.json: .*{said}.*give a TABLE.json written by this command"):
        read_imported([path])


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


def test_an_older_file_that_says_less_of_a_run_agrees(elsewhere, tmp_path):
    rows = json.loads(elsewhere.read_text())
    for text in ("ab", "cd"):
        facts = {"0": rows[0]["provenance"]["0"] | {"text": text}}
        (tmp_path / f"{text}.json").write_text(json.dumps([rows[0] | {"provenance": facts}]))
    assert read_imported([tmp_path / "ab.json", elsewhere]) and read_imported([elsewhere, tmp_path / "ab.json"])
    with pytest.raises(BadInput, match="differs from another --known file"):
        read_imported([tmp_path / "ab.json", tmp_path / "cd.json"])


def test_figures_of_runs_that_are_gone_are_not_overwritten(filled, runner, tmp_path):
    table = tmp_path / "results" / "infocse-5-mini.json"
    filled("--seeds", "0", "1")
    filled("--seeds", "0")  # nothing is lost: the runs are here
    filled("--seeds", "0", "1")
    shutil.rmtree(tmp_path / "runs")
    held, asked = table.read_text(), len(runner.asked)
    for flags in (["0"], ["0", "1", "--collect"], ["0", f"--known={table}"],
                  ["0", "1", f"--known={table}", "--rows", "InfoCSE"]):  # fmt: skip
        with pytest.raises(BadInput, match=r"has figures of \d runs that are not in .* and would be lost"):
            filled("--seeds", *flags)
        assert table.read_text() == held and len(runner.asked) == asked
    filled("--seeds", "0", f"--output={tmp_path / 'elsewhere'}")
    shutil.rmtree(tmp_path / "runs")
    assert [row["ours"] for row in filled("--seeds", "0", "1", "2", f"--known={table}")] == [81.0] * 3
    table.write_text("[1]")
    with pytest.raises(BadInput, match=NO_TABLE):
        filled("--seeds", "0")


COMMITTED = sorted(path for name in specification.names() for path in RESULTS.glob(f"{name}-mini.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_tables_are_read_and_fill_the_same_rows_again(path):
    """A later version must find a run by the name and the keys that an earlier one wrote."""
    rows = json.loads(path.read_text())
    imported = read_imported([path])
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
