"""Studies: which runs their files ask for, and what their tables say; training is faked."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from common.errors import BadInput
from eval.scores import row as score_row
from papers import runs, study, study_page, study_runs
from papers.__main__ import main
from papers.differences import over_seeds
from papers.runs import Choice
from tests.papers.conftest import Task, flags_of
from tests.sources import ROOT
from training.settings import read

STUDIES = {name: study.read(name) for name in study.names()}
TRAINED = [name for name, content in STUDIES.items() if not content.recorded]


def no_data(content, tasks_of=study_runs.tasks_of):
    return {file: [Task(task.name) for task in tasks] for file, tasks in tasks_of(content).items()}


@pytest.fixture
def asked(monkeypatch):
    """Every command that would have trained. Its dev score depends on the rate, its test scores on
    lambda and seed."""
    commands = []

    def launch(script, *argv):
        flags = flags_of(argv)
        commands.append(flags)
        folder, grows = Path(flags["output_dir"]), 0.01 * ("aux_cls" in flags)
        losses = {"eval_mlm": 3.0, "eval_aux_mlm": 5.0}
        rate = {"1e-5": 70.0, "3e-5": 80.0, "1e-4": 75.0}.get(flags.get("learning_rate"), 60.0)
        text = {"sha256": flags.get("train_file", "t")}
        record = {"trajectory": {"start": flags["model_name_or_path"], "text": text}}
        record |= {"best": {"value": rate + int(flags["seed"]), "step": 5}}
        record["steps"] = int(flags.get("max_steps", 9))
        runs.record_untrained(folder, record | {"run_id": "r"})
        for step in (20, 40):
            look = {"step": step, "tokens": 100 * step, **losses}
            look["eval_aux_mlm_shuffled_cls"] = 5.0 + grows * step
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(look) + "\n")

    def score(folder, name, tasks, data_dir, model=None, max_length=None, **how):
        assert (max_length == 128) == name.startswith("retrieval-")
        flags = next(flags for flags in commands if flags["output_dir"] == str(folder))
        weight, seed = float(flags.get("aux_weight", 0)), int(flags["seed"])
        value = 60.0 + 10 * weight + seed * (1 + weight)
        value += 5 * (flags.get("projection") == "batch_norm")
        names = [task.name for task in tasks] if name.startswith("retrieval-") else ["Avg."]
        rows = [score_row(task, "test", "spearman", "single", 5, value) for task in names]
        (folder / f"{name}.json").write_text(json.dumps(rows))

    monkeypatch.setattr(study_runs, "tasks_of", no_data)
    monkeypatch.setattr(runs, "launch", launch)
    monkeypatch.setattr(runs, "score", score)
    return commands


@pytest.fixture
def filled(folders):
    def fill(name, *flags, model="m"):
        return main([name, f"--model={model}", *folders, *flags])

    return fill


@pytest.mark.parametrize("name", TRAINED)
def test_the_runs_of_a_study_are_comparable(name):
    rows = study.known_rows(STUDIES[name], ROOT / "results" / f"{name}.json")
    study_runs.refuse_mixed(STUDIES[name], rows)


@pytest.mark.parametrize("name", TRAINED)
def test_every_flag_of_a_study_is_one_of_its_script(name):
    for levels in STUDIES[name].combinations:
        plan = study_runs.plan_of(STUDIES[name], levels, Choice(model="m"))
        for planned in filter(None, (plan, plan.starts_from)):
            script, *words = planned.command(Choice(model="m", bf16=False), 0)
            read(script, words, "")


def test_the_best_rate_on_dev_is_trained_with_every_seed_once(asked, filled, tmp_path, capsys):
    flags = ["--rows", "simcse-mini", "moco-mini"]
    filled("methods-mini", *flags, "--list")
    assert "missing runs: 6 " in capsys.readouterr().out
    filled("methods-mini", *flags, "--seeds", "0")
    (tmp_path / "results" / "methods-mini.json").unlink()  # the rates are read from the runs, too
    filled("methods-mini", *flags, "--list")
    printed = " ".join(capsys.readouterr().out.split())
    assert "missing runs: 4 " in printed and "| simcse-mini, 3e-5 | 1 of 3 finished |" in printed
    rows = filled("methods-mini", *flags, "--seeds", "1", "2")  # seed 0 chooses
    simcse = [flags for flags in asked if "simcse-bert-base.yaml" in flags["config"]]
    tried = [(flags["learning_rate"], flags["seed"]) for flags in simcse]
    assert tried == [("1e-5", "0"), ("3e-5", "0"), ("1e-4", "0"), ("3e-5", "1"), ("3e-5", "2")]
    assert len(asked) == len(rows) == 10
    assert {row["learning_rate"] for row in rows if "sts" in row} == {"3e-5"}
    printed = " ".join(capsys.readouterr().out.split())
    line = "| simcse | 1e-5: 70.00, 3e-5: 80.00, 1e-4: 75.00 | 3e-5 | 81.00 ± 1.00 | 61.00 ± 1.00 |"
    assert line in printed
    line = "| moco | best rate | simcse | +0.00 | +0.00 to +0.00 | 3 | 1.000 | level |"
    assert line in printed, "runs of equal seed have equal scores"
    page = (tmp_path / "results" / "methods-mini.md").read_text()
    assert page.startswith("# Methods on mini-bert\n\n<!-- methods-mini: made by")
    assert filled("methods-mini", *flags, "--collect") == rows and len(asked) == 10
    assert (tmp_path / "results" / "methods-mini.md").read_text() == page


def test_rows_of_the_file_stay_and_are_not_trained_again(asked, filled, tmp_path):
    known = filled("infocse-seeds-mini", "--rows", "simcse-mini", "--seeds", "0")
    next(tmp_path.glob("runs/*/sts.json")).unlink()
    assert filled("infocse-seeds-mini", "--collect") == known
    shutil.rmtree(tmp_path / "runs")
    rows = filled("infocse-seeds-mini", "--rows", "simcse-mini", "--seeds", "0", "1")
    assert [flags["seed"] for flags in asked] == ["0", "1"] and rows[:1] == known and len(rows) == 2
    assert filled("infocse-seeds-mini", "--page") == rows
    with pytest.raises(BadInput, match=r"differ in start; compare them in two files"):
        filled("infocse-seeds-mini", "--rows=simcse-mini", "--seeds=2", model="other")
    shutil.rmtree(tmp_path / "runs")
    path = tmp_path / "results" / "infocse-seeds-mini.json"
    older = [{**row, "steps": row.pop("facts")["steps"]} for row in json.loads(path.read_text())]
    path.write_text(json.dumps(older))
    for flag in ("--steps=3", "--float32"):
        with pytest.raises(BadInput, match=r"json: has simcse-mini_[\w-]+ with 500 steps, bf16"):
            filled("infocse-seeds-mini", "--rows=simcse-mini", "--seeds=0", flag)


def test_rows_that_another_command_has_added_meanwhile_stay(asked, filled, tmp_path, monkeypatch):
    fill = study_runs.fill

    def slow(*arguments):
        rows = fill(*arguments)
        monkeypatch.setattr(study_runs, "fill", fill)
        filled("infocse-factorial-mini", "--rows", "RetroMAE-style", "--seeds", "0")
        return rows

    monkeypatch.setattr(study_runs, "fill", slow)
    rows = filled("infocse-factorial-mini", "--rows", "no pre-training", "--seeds", "0")
    assert {row["start"] for row in rows} == {"no pre-training", "RetroMAE-style"}
    assert filled("infocse-factorial-mini", "--page") == rows


def test_each_seed_has_a_stage_1_of_its_own_with_the_same_steps_and_text(asked, filled):
    flags = ["--rows=RetroMAE-style", "--steps=3", "--train_file=mine", "--seeds", "0", "1"]
    rows = filled("infocse-cause", *flags)
    assert {(given["max_steps"], given["train_file"]) for given in asked} == {("3", "mine")}
    starts = {row["seed"]: row["facts"]["start"] for row in rows}
    assert len(rows) == 10 and len({row["facts"]["start"] for row in rows}) == len(starts) == 2


def test_every_combination_is_trained_once_from_the_start_that_it_names(asked, filled, capsys):
    flags = ["--rows", "no pre-training", "RetroMAE-style", "--seeds", "0", "1"]
    rows = filled("infocse-factorial-mini", *flags)
    assert len(rows) == 2 * 2 * 3 * 2 and len(asked) == len(rows) + 1, "and one run of stage 1"
    second = [flags for flags in asked if "aux_weight" in flags]
    assert len({flags["model_name_or_path"] for flags in second}) == 2
    for flags in second:
        assert flags["skip_from"] == "0"
        assert ("aux_init" in flags) == (flags["model_name_or_path"] == "m")
    [stage_one] = [flags for flags in asked if "aux_weight" not in flags]
    assert stage_one["head_init"] == "encoder_top" and stage_one["max_steps"] == "300"
    text = " ".join(capsys.readouterr().out.split())
    # lambda 0.1 adds 1 to seed 0 and 1.1 to seed 1, everywhere; batch norm adds 5 everywhere
    assert "| lambda 0.1 | all | 0 | +1.05 |" in text and "| nDCG@10 | at | minus |" in text
    assert "| head batch norm | all | tanh | +5.00 | +5.00 to +5.00 | 2 | - | two seeds |" in text


def test_the_loss_increase_of_every_setting_is_drawn(asked, filled, tmp_path, capsys):
    rows = filled("conditioning-mini", "--rows", "Condenser-style", "all four")
    gaps = [(row["name"], row["tokens"], round(row["gap"], 6)) for row in rows]
    assert gaps[:2] == [("Condenser-style", 2000, 0.0), ("Condenser-style", 4000, 0.0)]
    assert gaps[2:] == [("all four", 2000, 0.2), ("all four", 4000, 0.4)]
    printed = capsys.readouterr().out
    assert "4,000 tokens" in printed and "not reached" in printed
    assert (tmp_path / "results" / "conditioning-mini.png").read_bytes().startswith(b"\x89PNG")


def test_each_seed_of_a_stage_1_has_its_own_losses():
    content, rows = STUDIES["conditioning-mini"], []
    for seed, gap in ((0, 0.9), (1, 0.1)):
        losses = {"own": 1.0, "other": 1.0 + gap, "gap": gap, "mlm": 2.0, "tokens": 2000}
        rows.append(dict.fromkeys(content.levels, "all four") | {"seed": seed, **losses})
    [[_, *lines]] = study_page.last_losses(content, study_page.figures_of(rows))
    shown = [(line[0], line[3]) for line in lines]
    assert shown == [("all four, seed 0", "0.900"), ("all four, seed 1", "0.100")]


def test_pairs_differ_in_one_factor_and_those_of_a_seed_are_averaged_first():
    scores = {("tanh", "0"): [60.0, 61.0], ("tanh", "0.1"): [60.5, 62.0, 99.0]}
    scores |= {("norm", "0"): [50.0, 50.0], ("norm", "0.1"): [51.5, 55.0]}
    rows = [
        {"start": "plain", "head": head, "lambda": weight, "seed": seed, "sts": {"Avg.": value}}
        for (head, weight), values in scores.items()
        for seed, value in enumerate(values)
    ]
    content, runs = STUDIES["infocse-factorial-mini"], study_page.figures_of(rows)
    found = study_page.effects_on(content, "sts", runs)
    _, weight, *rest = found
    assert (weight.arm, weight.at, weight.against) == ("lambda 0.1", "all", "0")
    # differences 0.5 and 1.5, 1 and 5: means 1 and 3
    assert str(weight.difference) == str(over_seeds(pd.Series([1.0, 3.0])))
    assert [one.at for one in rest] == ["plain, tanh", "plain, norm"], "with one start, it is all"
