"""The command with a runner that only writes records: what is asked, kept and said."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from common.errors import BadInput, NonFinite, ProjectError, Stopped, StorageError
from papers import __main__ as command
from papers import runs
from papers.__main__ import main
from papers.plans import config_files, start_flags
from tests.faults.forked import Race
from tests.papers.conftest import flags_of
from tests.refusals import refused
from training.run_folder import finished


def test_only_missing_runs_are_trained_and_serve_two_tables(runner, filled, tmp_path, capsys):
    rows = filled("--seeds", "0", "1")
    seeds = [flags["seed"] for flags in runner.asked]
    assert seeds == [*"000111"], "every row before the second seed"
    assert [flags.get("aux_weight") for flags in runner.asked[:3]] == [None, "0", None]
    assert {flags["test_tasks"] for flags in runner.asked} == {"none"}
    assert [(row["ours"], row["ours_runs"]) for row in rows] == [(80.5, 2)] * 3
    assert "80.50 ± 0.71" in capsys.readouterr().out
    left = {path.name for path in (tmp_path / "runs").glob("*/checkpoint-*")}
    assert left == {"checkpoint-notes"}
    written = tmp_path / "results" / "infocse-mini"
    labels = [row["label"] for row in json.loads(written.with_suffix(".json").read_text())]
    assert labels == ["InfoCSE", "w/o MLM loss", "w/o contrastive loss"]
    assert written.with_suffix(".md").read_text().startswith("# InfoCSE (arXiv")
    filled("--seeds", "0", "1")
    assert [row["ours_runs"] for row in filled("--seeds", "0", "1", "2", "--collect")] == [2] * 3
    assert len(runner.asked) == 6
    filled("--seeds", "0", "1", "2")
    assert len(runner.asked) == 9 and runner.asked[-1]["seed"] == "2"
    filled("--seeds=0", name="infocse-8")
    weights = [flags.get("aux_weight") for flags in runner.asked[9:]]
    assert weights == ["5e-6", "5e-5", "1e-4", "5e-3", "1e-2", "5e-2"]  # 0 and 1e-5 are there
    tables = [row["table"] for row in json.loads(written.with_suffix(".json").read_text())]
    assert tables == ["infocse-5"] * 3 + ["infocse-8"] * 8
    text = written.with_suffix(".md").read_text()
    assert "## infocse-5" in text and "## infocse-8" in text


def test_a_run_that_diverges_is_left_missing_and_the_others_go_on(runner, filled):
    runner.broken = {"1": NonFinite("loss is nan")}
    [row] = filled("--seeds", "0", "1", "2", "--rows", "InfoCSE")
    assert row["ours_runs"] == 2


@pytest.mark.parametrize("error", [BadInput("no such text"), StorageError("full")])
def test_what_the_next_run_would_meet_too_stops_at_once(runner, filled, error):
    runner.broken = {"0": error}
    with pytest.raises(type(error)):
        filled()
    assert len(runner.asked) == 1


def test_an_untrained_model_is_scored_once_with_its_pooling(runner, folders):
    main(["infocse-10", "--model=m", "--rows=Avg. BERT embeddings", *folders])
    [(folder, name, model, how)] = runner.scored
    assert (name, model, how["pooling"]) == ("dev", "m", "avg") and not runner.asked
    assert folder.startswith("untrained-bert-base-avg_")


def test_figures_of_runs_that_are_gone_are_not_overwritten(filled, runner, tmp_path):
    table = tmp_path / "results" / "infocse-mini.json"
    filled("--seeds", "0", "1")
    filled("--seeds", "0")  # nothing is lost: the runs are here
    rows = filled("--seeds", "0", "1")
    shutil.rmtree(tmp_path / "runs")
    held, asked = table.read_text(), len(runner.asked)
    for flags in (["0"], ["0", "1", "--rows", "InfoCSE"], ["0", "1", "--collect"]):
        refused(filled, "--seeds", *flags, match="figures of runs .*not in .* would be lost")
        assert table.read_text() == held and len(runner.asked) == asked
    assert filled("--page") == json.loads(held) == json.loads(table.read_text())
    again = filled("--seeds", "0", "1")  # trains the same runs again
    assert [row["by_seed"] for row in again] == [row["by_seed"] for row in rows]


def test_a_page_names_the_command_that_filled_it(filled, runner, tmp_path):
    filled("--seeds", "0", "--steps", "30")
    filled("--page")
    page = (tmp_path / "results" / "infocse-mini.md").read_text()
    assert "python -m papers infocse-5 --backbone mini --steps 30 --seeds 0\n" in page


def test_a_chained_row_s_first_run_is_listed_before_it(runner, filled, capsys):
    consert = partial(filled, "--rows=ConSERT-base sup-unsup", "--steps=4", name="consert-3")
    consert("--seeds", "0", "1", "--dry_run")
    *_, summary, first, second, third, last = capsys.readouterr().out.splitlines()
    assert summary.startswith("missing runs: 4 ")
    for line in (first, third):
        assert "consert-sup-bert-base.yaml" in line and "mini.yaml" in line
    start = next(word for word in first.split("=") if "consert-sup-mini_" in word).split()[0]
    assert f"--model_name_or_path={start}" in second and "--seed=1" in last
    assert "consert-sup-unsup-bert-base.yaml" in second
    consert("--seeds", "0")
    capsys.readouterr()
    consert("--seeds", "0", "1", "--list")
    assert "missing runs: 2 " in capsys.readouterr().out


def test_the_list_of_all_counts_runs_and_says_why_a_row_has_none(runner, filled, folders, capsys):
    filled("--seeds", "0", "--rows", "InfoCSE", "w/o MLM loss")
    capsys.readouterr()
    main(["--list", *folders])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    known = "| infocse-5 | InfoCSE without one of its losses | 3 | 2 | 2 of 3 | mini | 1 | 0 |"
    assert known in lines
    assert "| infocse-10 | Transfer tasks, accuracy | 8 | 0 | 0 of 64 | - | 6 | 2 |" in lines
    listed = {line.split()[1] for line in lines if line.startswith("| ")}
    assert listed > {"methods-mini", "consert-1", "consert-figure-1"}
    main(["infocse-5", "--list", "--backbone=mini", folders[1]])
    states = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "| InfoCSE | 0 of 3 finished | mini | 1 of 1 | - |" in states
    assert "| w/o contrastive loss | 0 of 3 finished | - | 0 of 1 | - |" in states
    why = "infocse-10, Skip-thought: published only: a recurrent network"
    assert any(line.startswith(why) for line in lines)


@pytest.mark.parametrize(
    ("name", "first", "said"),
    [
        ("infocse-5", "InfoCSE", "unknown --rows 'InfoCES'; infocse-5 has: InfoCSE; w/o MLM loss"),
        ("infocse-retromae-mini", "infocse-retromae-mini", "infocse-retromae-mini has: infocse-"),
        ("infocse2", "InfoCSE", "unknown table 'infocse2': did you mean 'infocse-2'"),
    ],
)
def test_an_unknown_row_or_table_is_refused(folders, name, first, said):
    refused(main, [name, "--rows", first, "InfoCES", *folders], match=said)


def test_where_a_method_starts():
    def start(name, overrides, model="m", stage_one="s"):
        return start_flags(config_files(name), overrides, model, stage_one)

    assert start("simcse-mini", {}) == {"model_name_or_path": "m"}
    assert start("infocse-mini", {}) == {"model_name_or_path": "s"}
    assert start("infocse-mini", {"aux_init": "encoder_top"}) == {"model_name_or_path": "m"}
    assert start("infocse-mini", {}, stage_one=None) == {}
    assert start("infocse-rtd-mini", {}) == {"model_name_or_path": "s", "generator": "m"}
    assert start("diffcse-bert-base", {}) == {"model_name_or_path": "m"}  # it names its generator


def test_a_runner_s_error_keeps_its_exit_code(tmp_path):
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    with pytest.raises(ProjectError, match=r"--a=b failed with exit code 3") as caught:
        runs.launch(str(tmp_path / "script.py"), "--a=b")
    assert caught.value.exit_code == 3


ASKS_ITS_PARENT_TO_STOP = """
import os, signal
from pathlib import Path

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getppid(), signal.SIGTERM)
signal.sigwait([signal.SIGTERM])
Path(__file__).with_name("stopped").touch()
"""


def test_a_signal_stops_the_training_run_too(folders, tmp_path, monkeypatch):
    script = tmp_path / "run_pretrain_aux.py"
    script.write_text(ASKS_ITS_PARENT_TO_STOP)
    monkeypatch.setattr(command, "_fill", lambda *_: runs.launch(str(script)))
    with pytest.raises(Stopped):
        main(["infocse-4", *folders])
    assert (tmp_path / "stopped").exists()


def test_four_commands_share_a_table_although_one_is_killed(runner, filled, tmp_path, monkeypatch):
    """Each takes a run that nobody holds, or waits for the one that its run starts from."""
    race = Race(tmp_path, 4)

    def launch(script, *argv):
        given = flags_of(argv)
        name = Path(given["output_dir"]).name
        if "sup-unsup" in name and finished(Path(given["model_name_or_path"])) is None:
            race.note("a start that is not finished")
        race.begin(name)
        runner.launch(script, *argv)
        race.note(f"end {name}")

    monkeypatch.setattr(runs, "launch", launch)
    flags = ["--rows", "SBERT-base-NLI (re-impl.)", "ConSERT-base sup-unsup", "--seeds", *"0123"]
    notes = race.run(lambda number: filled(*flags, name="consert-3"))
    ends = [line.removeprefix("end ") for line in notes if line.startswith("end ")]
    assert len(notes) == 17 and len(ends) == len(set(ends)) == 8  # one began twice
    found = json.loads((tmp_path / "results" / "consert-mini.json").read_text())
    assert all(len(row["provenance"]) == 4 for row in found)
    assert "SBERT-base-NLI" in (tmp_path / "results" / "consert-mini.md").read_text()
