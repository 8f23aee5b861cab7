"""`bench gap` and `bench factorial`: which runs are asked for, and what their tables say; training is faked."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import pytest

from bench.__main__ import main
from common.errors import BadInput
from papers import factorial, gap, runs, studies
from tests.papers.conftest import flags_of


@pytest.fixture
def asked(monkeypatch):
    """Every command that would have trained; its run is made up: a gap that grows, scores that follow the flags."""
    found = []

    def train(script, argv):
        flags = flags_of(argv)
        found.append(flags)
        folder = Path(flags["output_dir"])
        folder.mkdir(parents=True)
        grows = 0.01 * ("aux_cls" in flags)
        looks = [{"step": step, "tokens": 100 * step, "eval_mlm": 3.0, "eval_aux_mlm": 5.0,
                  "eval_aux_mlm_shuffled_cls": 5.0 + grows * step} for step in (20, 40)]  # fmt: skip
        if flags.get("aux_weight") == "0":
            looks = []
        (folder / "log.jsonl").write_text("".join(json.dumps(look) + "\n" for look in looks))
        facts = {
            "settings": {"model_name_or_path": flags["model_name_or_path"]},
            "commit": "c",
            "versions": {},
            "hardware": {},
            "trajectory": {},
            "steps": 1,
        }
        best = {"value": 80.0 + float(flags.get("aux_weight", 0)), "step": 50}
        (folder / "run.json").write_text(json.dumps({"status": "finished", "best": best, **facts}))

    def score(folder, name, tasks, data_dir, bf16, max_length=None):
        assert (max_length == 128) == (name == "search")
        weight, seed = (float(part.split("-", 1)[1]) for part in folder.name.split("_") if part[:4] in ("lamb", "seed"))
        value = 60.0 + 10 * weight + seed * (1 + weight) + 5 * ("norm" in folder.name)
        task = tasks[0].name if name == "search" else "Avg."
        (folder / f"{name}.json").write_text(json.dumps([{"task": task, "value": value}]))

    monkeypatch.setattr(runs, "refuse_missing", lambda *_: None)  # no data here
    monkeypatch.setattr(runs, "launch", train)
    monkeypatch.setattr(runs, "check_run", lambda *_: None)
    monkeypatch.setattr(runs, "score", score)
    return found


def test_the_gap_of_every_setting_is_read_from_its_log_and_drawn(asked, tmp_path, capsys):
    argv = ["gap", "--model=m", f"--folder={tmp_path / 'runs'}", f"--figure={tmp_path / 'gap.png'}",
            "--settings", "published", "all four"]  # fmt: skip
    rows = main(argv)
    assert [(row["name"], row["tokens"], round(row["gap"], 6)) for row in rows] == [
        ("published", 2000, 0.0), ("published", 4000, 0.0), ("all four", 2000, 0.2), ("all four", 4000, 0.4)
    ]  # fmt: skip
    printed = capsys.readouterr().out
    assert "4,000 tokens" in printed and "not reached" in printed
    assert (tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")
    assert asked[0].keys() & gap.ALL.keys() == set() and gap.ALL.items() <= asked[1].items()
    main(argv)
    assert len(asked) == 2, "a finished run is left alone"


def test_every_combination_is_trained_once_from_the_start_that_it_names(asked, tmp_path, capsys):
    argv = ["factorial", "--model=m", f"--folder={tmp_path / 'runs'}", "--starts", "plain", "read",
            "--weights", "0", "0.1", "--seeds", "0", "1", f"--output={tmp_path / 'rows.json'}"]  # fmt: skip
    rows = main(argv)
    assert len(rows) == 2 * 2 * 2 * 2 and len(asked) == len(rows) + 1, "and one run of stage 1"
    starts = {flags["model_name_or_path"] for flags in asked[1:]}
    assert len(starts) == 2 and "m" in starts
    for flags in asked:
        if "aux_weight" in flags:
            assert flags["skip_from"] == "0"
            assert ("aux_init" in flags) == (flags["model_name_or_path"] == "m")
    text = " ".join(capsys.readouterr().out.split())
    # lambda 0.1 adds 1 to seed 0 and 1.1 to seed 1, everywhere; batch norm adds 5 everywhere
    assert "| lambda 0.1 | all | 0 | +1.05 |" in text
    assert "| head batch norm | all | tanh | +5.00 | +5.00 to +5.00 | 2 |" in text
    main([*argv[:-1], "--search", "scifact", "--transfer"])
    text = " ".join(capsys.readouterr().out.split())
    assert "nDCG@10, points" in text and "transfer avg., points" in text
    before = len(asked)
    known = [row | {"machine": "other", "torch": "1.0", "threads": 64} for row in rows]
    (tmp_path / "rows.json").write_text(json.dumps(known))
    again = main([*argv[:2], f"--folder={tmp_path / 'elsewhere'}", *argv[3:], f"--known={tmp_path / 'rows.json'}"])
    assert len(asked) == before and again == known, "known rows are not trained again and keep their machine"
    with pytest.raises(BadInput, match=r"rows\.json: plain_tanh.* has other steps, another learning rate or precision"):
        main([*argv, "--float32", f"--known={tmp_path / 'rows.json'}"])
    known[0]["search"], known[1]["search"] = {"Avg.": 1.0, "med": 1.0}, {"Avg.": 1.0, "npl": 1.0}
    (tmp_path / "rows.json").write_text(json.dumps(known))
    with pytest.raises(BadInput, match="runs searched different sets"):
        main([*argv, f"--known={tmp_path / 'rows.json'}"])
    own_text = {"name": "x", "start": "m", "seed": 0, "facts": {}, "method": "spans", "set": "med"}
    (tmp_path / "rows.json").write_text(json.dumps([own_text]))
    with pytest.raises(BadInput, match=r"rows\.json: not results of this study"):
        main([*argv, f"--known={tmp_path / 'rows.json'}"])


def test_classifiers_and_search_run_where_the_encoder_does(monkeypatch):
    for module in (runs, studies):
        monkeypatch.setattr(module, "device_here", lambda: "cuda")
    tasks = studies.study_tasks(Namespace(search=["med"], transfer=True))
    tasks = [*tasks["search"], *tasks["transfer"]]
    assert len(tasks) == 8 and {task.device for task in tasks} == {"cuda"}


@pytest.mark.parametrize(("flags", "missing"), [(["--search", "med"], r"med/corpus\.jsonl"), ([], "STS12-en-test")])
def test_test_data_that_is_not_there_stops_the_command_before_the_training(tmp_path, monkeypatch, flags, missing):
    monkeypatch.setattr(runs, "launch", lambda *_: pytest.fail("trained"))
    with pytest.raises(BadInput, match=missing):
        main(["factorial", "--model=m", f"--folder={tmp_path / 'runs'}", f"--data_dir={tmp_path}", *flags])


def test_each_precision_has_its_own_stage_one_and_collect_trains_none(asked, tmp_path):
    argv = ["factorial", f"--folder={tmp_path}", "--starts=read", "--heads=tanh", "--weights=0.1", "--model=m",
            "--seeds=0"]  # fmt: skip
    rows = main(argv)
    shutil.rmtree(tmp_path / "stage-1_read_steps-300")
    assert main([*argv, "--collect"]) == rows and len(asked) == 2
    main([*argv, "--float32"])
    with pytest.raises(BadInput, match="no finished run; remove --collect"):
        main([*argv[:-1], "--collect", "--seeds=9"])
    assert [flags["bf16"] for flags in asked] == ["true", "true", "false", "false"]
    assert asked[3]["model_name_or_path"] == asked[2]["output_dir"] != asked[0]["output_dir"]


def test_an_interval_is_students_over_the_means_of_pairs_of_each_seed():
    rows = [{"start": "plain", "head": head, "lambda": weight, "seed": seed, "sts": {"Avg.": value}}
            for head, weight, seed, value in (
                ("tanh", "0", 0, 60.0), ("tanh", "0", 1, 61.0), ("tanh", "0.1", 0, 60.5), ("tanh", "0.1", 1, 62.0),
                ("norm", "0", 0, 50.0), ("norm", "0", 1, 50.0), ("norm", "0.1", 0, 51.5), ("norm", "0.1", 1, 55.0),
                ("tanh", "0.1", 2, 99.0))]  # fmt: skip
    _, _, line, *rest = factorial.effects(rows)
    # differences 0.5 and 1.5, 1 and 5: means 1 and 3, mean 2, standard error 1, t(0.975, 1) = 12.706
    assert line == ["lambda 0.1", "all", "0", "+2.00", "-10.71 to +14.71", "2"]
    assert [each[1] for each in rest] == ["plain, tanh", "plain, norm"], "with one start, it is the same as all"
