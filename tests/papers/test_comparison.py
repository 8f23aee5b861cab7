"""The comparison of methods on the tiny model: search, seeds, scores, and what is left alone."""

import json

import pytest

from bench.__main__ import main
from common.errors import BadInput, CheckpointRefused
from papers import runs, studies
from tests.papers.conftest import flags_of


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Runs are faked where they would be trained: what is tested is which are asked for and what becomes of them."""
    asked = []

    def train(script, argv):
        flags = flags_of(argv)
        folder = tmp_path / "runs" / flags["output_dir"].split("/runs/")[1]
        asked.append((flags["config"].split("/")[-1], flags["learning_rate"], flags["seed"]))
        folder.mkdir(parents=True)
        value = {"1e-5": 70.0, "3e-5": 80.0, "1e-4": 75.0}[flags["learning_rate"]] + int(flags["seed"])
        record = {"status": "finished", "steps": int(flags["max_steps"]), "best": {"value": value, "step": 5},
                  "commit": "c", "versions": {}, "hardware": {},
                  "trajectory": {"model_name_or_path": flags["model_name_or_path"],
                                 "start": flags["model_name_or_path"], "text": {"sha256": "t"},
                                 "bf16": flags["bf16"] == "true",
                                 "temperature": float(flags.get("temperature", 0.05))}}  # fmt: skip
        (folder / "run.json").write_text(json.dumps(record))

    def score(folder, name, tasks, data_dir, bf16, max_length=None):
        assert bf16 == json.loads((folder / "run.json").read_text())["trajectory"]["bf16"], "scored as it was trained"
        if (folder / f"{name}.json").exists():
            return
        assert (max_length == 128) == (name == "search")
        value = {"sts": 60.0, "search": 20.0, "transfer": 80.0}[name] + int(str(folder)[-1])
        names = [task.name for task in tasks] if name == "search" else ["Avg."]
        (folder / f"{name}.json").write_text(json.dumps([{"task": task, "value": value} for task in names]))

    monkeypatch.setattr(studies, "STS_TEST", ())  # no data here
    monkeypatch.setattr("papers.comparison.STS_TEST", ())
    monkeypatch.setattr(runs, "launch", train)
    monkeypatch.setattr(runs, "score", score)
    return tmp_path / "runs", asked


@pytest.fixture
def argv(made):
    return ["methods", "--model=m", "--methods", "simcse-mini", "--steps=9", f"--folder={made[0]}"]


def test_the_best_rate_on_dev_is_trained_with_every_seed_and_nothing_twice(made, capsys):
    folder, asked = made
    argv = ["methods", "--model=m", "--methods", "simcse-mini", "moco-mini", "--steps=9", f"--folder={folder}"]
    rows = main(argv)
    assert asked[:5] == [("simcse-mini.yaml", rate, "0") for rate in ("1e-5", "3e-5", "1e-4")] + [
        ("simcse-mini.yaml", "3e-5", seed) for seed in ("1", "2")
    ]
    assert len(asked) == len(rows) == 10
    chosen = [row for row in rows if row["sts_average"] is not None]
    assert {row["learning_rate"] for row in chosen} == {"3e-5"} and len(chosen) == 6
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if line.startswith("| simcse "))
    assert "81.00 ± 1.00" in line and "61.00 ± 1.00" in line and "1e-5: 70.00" in line
    assert "| diffcse" not in printed and "not run" in printed
    # Means 61 and 61, deviations 1 and 1, three runs each: 2.776 (t, 4 degrees of freedom) times the root of 2 / 3.
    assert "| moco         | +0.00 (-2.27 to +2.27) | -       |" in printed
    other = folder / "simcse-mini" / "steps-9_lr-1e-4_seed-0"  # another rate, scored by hand
    runs.score(other, "sts", [], "", bf16=True)
    main([*argv, "--collect"])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| simcse "))
    assert "| 61.00 ± 1.00 | not run | 3 |" in line
    (other / "sts.json").unlink()
    assert main([*argv, "--collect"]) == rows
    assert len(asked) == 10
    with pytest.raises(CheckpointRefused, match="model_name_or_path: was m, now other"):
        main([word.replace("=m", "=other") for word in argv])


def test_the_rates_tried_are_those_of_the_seed_of_the_search(made, argv, capsys):
    main([*argv, "--seeds", "2", "0", "1"])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| simcse "))
    assert all(f"{rate}: " in line for rate in ("1e-5", "3e-5", "1e-4"))


def test_search_is_added_to_finished_runs_and_stays(made, argv, capsys):
    folder, asked = made
    main(argv)
    rows = main([*argv, "--collect", "--search", "med"])
    assert len(asked) == 5 and main([*argv, "--collect"]) == rows
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| simcse ")]
    assert "| 61.00 ± 1.00 | not run | 3 |" in lines[0]
    assert "| 61.00 ± 1.00 | 21.00 ± 1.00 | 3 |" in lines[1] and lines[2] == lines[1]
    with pytest.raises(BadInput, match=r"search\.json: has med, not the sets of --search; remove it"):
        main([*argv, "--collect", "--search", "npl"])
    (folder / "simcse-mini" / "steps-9_lr-3e-5_seed-1" / "search.json").unlink()
    main([*argv, "--collect"])
    assert "| 61.00 ± 1.00 | 21.00 ± 1.41 (n = 2) | 3 |" in capsys.readouterr().out


def test_a_run_that_was_moved_away_is_not_collected(made, argv):
    folder, _ = made
    rows = main(argv)
    (folder / "simcse-mini" / "steps-9_lr-1e-5_seed-0").rename(folder / "simcse-mini" / "steps-9_lr-1e-5_seed-0_old")
    assert len(main([*argv, "--collect"])) == len(rows) - 1


def test_a_search_set_that_is_not_there_stops_the_command_before_the_training(made, tmp_path):
    folder, asked = made
    with pytest.raises(BadInput, match=r"med/corpus\.jsonl"):
        main(["methods", "--model=m", f"--folder={folder}", f"--data_dir={tmp_path}", "--search", "med"])
    assert not asked


def test_known_runs_are_not_trained_again_and_stand_in_the_table(made, tmp_path, capsys):
    folder, asked = made
    argv = ["methods", "--model=m", "--steps=9", "--methods=simcse-mini", f"--output={tmp_path / 'rows.json'}"]
    main([*argv, f"--folder={folder}", "--learning_rates", "1e-5", "3e-5", "--seeds", "0"])
    assert len(asked) == 2
    rows = main([*argv, f"--folder={folder.parent / 'runs' / 'later'}", f"--known={tmp_path / 'rows.json'}"])
    assert [run[1:] for run in asked[2:]] == [("1e-4", "0"), ("3e-5", "1"), ("3e-5", "2")]
    assert len(rows) == 5
    line = next(line for line in capsys.readouterr().out.splitlines()[::-1] if line.startswith("| simcse "))
    assert "1e-5: 70.00, 3e-5: 80.00, 1e-4: 75.00" in line and "61.00 ± 1.00" in line
    with pytest.raises(BadInput, match=r"rows\.json: simcse-mini .* has 9 steps, not 8"):
        main([*(word.replace("=9", "=8") for word in argv), f"--folder={folder}", f"--known={tmp_path / 'rows.json'}"])
    with pytest.raises(BadInput, match=r"simcse-mini .* differ in start; compare them in two"):
        main([*(word.replace("=m", "=other") for word in argv), f"--folder={folder / 'runs' / 'new'}",
              f"--known={tmp_path / 'rows.json'}", "--seeds", "3", "4"])  # fmt: skip
    assert [run[1:] for run in asked[5:]] == [("1e-5", "3")], "the conflict was found after the first run"
    (tmp_path / "rows.json").write_text('[{"name": "x"}]')
    with pytest.raises(BadInput, match=r"rows\.json: not results of this study"):
        main([*argv, f"--folder={folder}", f"--known={tmp_path / 'rows.json'}"])


def test_classifiers_are_added_to_finished_runs(argv, capsys):
    main(argv)
    assert "transfer avg." not in capsys.readouterr().out
    rows = main([*argv, "--collect", "--transfer"])
    assert [row["transfer"] for row in rows if row["sts_average"]] == [{"Avg.": 80.0 + seed} for seed in range(3)]
    assert "| 61.00 ± 1.00 | not run | 81.00 ± 1.00  | 3 |" in capsys.readouterr().out


def test_methods_from_two_starts_are_no_comparison(made):
    folder, _ = made
    argv = ["methods", "--steps=9", f"--folder={folder}", "--stage_one=s"]
    assert len(main([*argv, "--model=m", "--methods", "simcse-mini", "infocse-mini"])) == 10
    with pytest.raises(BadInput, match=r"esimcse-mini .* and simcse-mini .* differ in start; compare them in two"):
        main([*argv, "--model=other", "--methods", "esimcse-mini"])


def test_the_precision_is_that_of_the_runs_and_one_for_all(made):
    folder, _ = made
    argv = ["methods", "--steps=9", f"--folder={folder}", "--model=m", "--methods"]
    assert {row["precision"] for row in main([*argv, "simcse-mini", "--float32"])} == {"float32"}
    with pytest.raises(CheckpointRefused, match="bf16: was False, now True"):
        main([*argv, "simcse-mini"])
    with pytest.raises(BadInput, match=r"esimcse-mini .* and simcse-mini .* differ in precision; compare them"):
        main([*argv, "esimcse-mini"])


def test_another_start_excuses_no_other_precision(made):
    folder, _ = made
    argv = ["methods", "--steps=9", f"--folder={folder}", "--model=m", "--stage_one=s", "--methods"]
    main([*argv, "simcse-mini", "--float32"])
    with pytest.raises(BadInput, match=r"infocse-mini .* and simcse-mini .* differ in precision|simcse-mini .* and "
                                       r"infocse-mini .* differ in precision"):  # fmt: skip
        main([*argv, "infocse-mini"])


def test_a_configuration_with_flags_is_a_method_of_its_own(made, capsys):
    folder, asked = made
    argv = ["methods", "--model=m", "--steps=9", f"--folder={folder}", "--seeds=0", "--learning_rates=3e-5"]
    flags = "simcse-mini  --temperature 0.1"
    rows = main([*argv, "--methods", "simcse-mini", flags])
    assert {row["method"] for row in rows} == {"simcse-mini", "simcse-mini --temperature 0.1"} and len(asked) == 2
    trained = {path.parts[-3]: json.loads(path.read_text())["trajectory"] for path in folder.rglob("run.json")}
    assert {name: each["temperature"] for name, each in trained.items()} == {
        "simcse-mini": 0.05, "simcse-mini_temperature-0.1": 0.1}  # fmt: skip
    assert "| simcse --temperature 0.1 | 3e-5: 80.00" in capsys.readouterr().out
    assert main([*argv, "--methods", flags]) == rows and len(asked) == 2


@pytest.mark.parametrize(
    ("flag", "message"),
    [("learning_rate", "this command sets --learning_rate; remove it"), ("seed", "this command sets --seed"),
     ("output_dir", "this command sets --output_dir"), ("bow_wait", "--bow_wait")],
)  # fmt: skip
def test_a_flag_that_the_command_sets_or_no_script_has_is_refused_before_any_training(made, flag, message):
    folder, asked = made
    with pytest.raises(BadInput, match=message):
        main(["methods", "--model=m", f"--folder={folder}", "--methods", "simcse-mini", f"simcse-mini --{flag} 1"])
    assert not asked


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("simcse", "'simcse' is none of consert-mini, ct-mini"), ("", "'' is none of"),
     ("simcse-mini --temperature", "is not CONFIG --FLAG VALUE"), ("simcse-mini a 1", "is not CONFIG --FLAG")],
)  # fmt: skip
def test_a_method_that_is_none_is_refused(wrong, message):
    with pytest.raises(BadInput, match=message):
        main(["methods", "--model=m", "--methods", wrong])


def test_nothing_to_collect_is_said(tmp_path):
    with pytest.raises(BadInput, match="no finished run"):
        main(["methods", "--model=m", "--collect", f"--folder={tmp_path}"])
