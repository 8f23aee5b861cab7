"""The whole reproduction against a stand-in of the hub: every part, a kill in each, the page."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

import infocse
import reproduce
from common.errors import FolderInUse, StorageError
from papers.reproduction import against_control, word, write_page
from tests.refusals import refused

from .conftest import DATA, keep

ARMS = ("simcse", "infocse", "simcse-control")


class Killed(BaseException):
    """Ends a part as a kill does: nothing catches it."""


@pytest.fixture
def quick(hub, monkeypatch):
    """The hub; one author's model is scored, and no step is measured."""
    monkeypatch.setattr(reproduce, "AUTHORS", reproduce.AUTHORS[:1])
    monkeypatch.setattr(reproduce, "measured_step", lambda method, scale: 100.0)
    return hub


def result(folder):
    return json.loads((folder / "reproductions" / "full-cpu" / "result.json").read_text())


def kill_at(monkeypatch, step):
    """Let the next training be killed at a step, after a checkpoint at every fifth."""
    train = infocse.train

    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == step:
                raise Killed

    def killed(*args, **settings):
        return train(*args, **settings, save_steps=5, callbacks=[Kill()])

    monkeypatch.setattr(infocse, "train", killed)


def test_every_part_may_be_killed_and_the_same_command_goes_on(quick, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("data.prepare._prepare_wiki", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            reproduce.main([])
    with monkeypatch.context() as patch:
        patch.setattr(reproduce.published, "score", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            reproduce.main([])
    for parts in (["simcse"], ["infocse"]):
        with monkeypatch.context() as patch:
            kill_at(patch, 7)
            with pytest.raises(Killed):
                reproduce.main(["--parts", *parts])
    assert reproduce.main([]) == "reproductions/full-cpu"
    broken = result(tmp_path)
    assert [entry["name"] for entry in broken["checkpoints"]] == ["infocse-bert-base"]
    seeds = [(arm, facts["seeds"]) for arm, facts in broken["arms"].items()]
    assert seeds == [(arm, [0]) for arm in ARMS]
    page = (tmp_path / "reproductions" / "full-cpu" / "README.md").read_text(encoding="utf-8")
    assert "one seed says little" in page and "headless" in page
    listed = (tmp_path / "reproductions" / "README.md").read_text(encoding="utf-8")
    assert all(f"| {arm} " in listed for arm in ARMS)

    monkeypatch.setattr(reproduce.published, "score", None)  # nothing is done a second time
    reproduce.main([])
    assert result(tmp_path)["arms"] == broken["arms"]

    shutil.rmtree("runs")  # the same without a kill
    reproduce.main(["--parts", "simcse"])
    whole = result(tmp_path)["arms"]["simcse"]
    for name in ("scores", "curves"):
        assert whole[name] == broken["arms"]["simcse"][name]
    # Nobody knows how long the killed command took.
    assert broken["arms"]["simcse"]["minutes"] == [None] and whole["minutes"][0] > 0


def test_every_process_of_a_launcher_has_the_data_before_it_trains(quick, tmp_path, monkeypatch):
    def train(**_):
        assert (tmp_path / "corpora" / "senteval" / "downstream" / "STS").is_dir()

    monkeypatch.setattr(infocse, "train", train)
    monkeypatch.setenv("RANK", "1")
    assert reproduce.main(["--parts", "simcse"]) is None


def test_a_failing_part_says_in_one_line_what_is_kept(quick, tmp_path, monkeypatch):
    keep(quick, DATA, {"senteval.tar": b"changed"})
    refused(reproduce.main, [], match=r"the data: .*; what is finished in corpora is kept")
    monkeypatch.setattr(reproduce, "prepare", lambda *_: [])
    shutil.rmtree(quick / "models--ffgcc--InfoCSE-bert-base")
    refused(reproduce.main, [], match=r"checkpoint infocse-bert-base: .* is kept: repeat")
    shutil.rmtree(quick / "models--Luyu--condenser")
    refused(reproduce.main, ["--parts", "infocse"], match=r"infocse-seed-0: '.*' cannot be fetched")

    def full(*_, **__):
        raise torch.OutOfMemoryError("3 GiB")

    monkeypatch.setattr(infocse, "train", full)
    with pytest.raises(StorageError, match=r"simcse-seed-0: out of memory \(3 GiB\)"):
        reproduce.main(["--parts", "simcse"])


def test_runs_of_others_are_left_and_the_last_writes_the_page(quick, tmp_path, monkeypatch, capsys):
    train, at_work = infocse.train, [0]

    def taken(*args, **settings):
        if settings["seed"] in at_work:
            raise FolderInUse("in use by another command (pid 1)")
        return train(*args, **settings)

    monkeypatch.setattr(infocse, "train", taken)
    argv = ["--parts", "simcse", "--seeds", "0", "1"]
    assert reproduce.main(argv) is None
    said = "other commands are still at: simcse, seed 0; the last to end writes the page"
    assert said in capsys.readouterr().out and not (tmp_path / "reproductions").exists()
    at_work.clear()
    reproduce.main(argv)
    assert result(tmp_path)["arms"]["simcse"]["seeds"] == [0, 1]

    # Seed 0 began on another machine with another commit: the page names both of both.
    path = tmp_path / "runs" / "reproduce" / "full" / "simcse-seed-0" / "run.json"
    run = json.loads(path.read_text(encoding="utf-8"))
    now, hardware = run["commit"], {"machine": "m", "device": "NVIDIA X", "threads": 3}
    earlier = {"commit": "e" * 40, "versions": {"torch": "1.0"}, "hardware": hardware}
    path.write_text(json.dumps(run | {"earlier_starts": [earlier]}), encoding="utf-8")
    reproduce.main(argv)
    page = (tmp_path / "reproductions" / "full-cpu" / "README.md").read_text(encoding="utf-8")
    _, how = page.split("## How")
    lines = [line for line in how.splitlines() if line.startswith("| simcse, seed ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    starts = [[run, minutes, commit] for run, minutes, _, commit, *_ in cells]
    resumed, other = starts[:2], starts[2]
    assert resumed == [["simcse, seed 0", "resumed", commit] for commit in ("e" * 40, now)]
    assert other[1].isdigit() and other[2] == now and len(starts) == 3
    assert cells[0][2] == "NVIDIA X (m, 3 threads)" and cells[0][5] == "torch 1.0"
    listed = (tmp_path / "reproductions" / "README.md").read_text(encoding="utf-8")
    assert "| NVIDIA X, cpu " in listed


def test_a_stage_1_of_another_command_is_waited_for_at_the_end(tmp_path, monkeypatch):
    asked = []

    def pretrain(**settings):
        asked.append(settings["output_dir"])
        if len(asked) < 3:
            raise FolderInUse("in use by another command (pid 1)")
        return str(settings["output_dir"])

    monkeypatch.setattr(infocse, "pretrain", pretrain)
    scale = reproduce.SCALES["small"]
    jobs = {"stage 1": lambda wait: reproduce.stage_one(scale, tmp_path, "corpora", wait)}
    assert reproduce.share(jobs) == [] and len(asked) == 3


def test_the_plan_names_downloads_disk_and_minutes(quick, monkeypatch, capsys):
    lfs = SimpleNamespace(sha256="s")
    weights = SimpleNamespace(rfilename="model.safetensors", size=9, lfs=lfs)
    answer = SimpleNamespace(siblings=[weights])
    client = SimpleNamespace(model_info=lambda name, **_: answer)
    monkeypatch.setattr(reproduce, "HfApi", lambda endpoint: client)
    scale = reproduce.SCALES["full"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    args = reproduce.parser().parse_args(["--seeds", "0", "1"])
    plan = reproduce.plan(args, replace(scale, steps=None, examples=1_000_000, size=(12, 768, 12)))
    assert "on: NVIDIA H200" in plan and "Luyu/condenser: " in plan and "sha256 model" in plan
    rows = [" ".join(line.split()) for line in plan.splitlines()]
    for row in ("simcse | 2 | 15,625 | 100.0 | 52", "infocse | 2 | 31,250 | 308.5 | 321"):
        assert any(line.startswith(f"| {row} |") for line in rows), row
    assert "disk: about " in plan
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(reproduce, "measured_step", lambda *_: pytest.fail("waits for rank 1"))
    reproduce.main(["--dry_run"])
    assert "`python reproduce.py --dry_run` has the plan" in capsys.readouterr().out


def test_a_step_is_measured_on_made_up_text(monkeypatch):
    monkeypatch.setattr(reproduce, "MEASURED", 2)
    made, materials = [], reproduce.Materials
    monkeypatch.setattr(
        reproduce,
        "Materials",
        lambda *args, **more: made.append(args[2:]) or materials(*args, **more),
    )
    tiny = reproduce.Scale("a model", None, (2, 32, 2))
    for method in ("infocse", reproduce.STAGE_ONE):
        assert reproduce.measured_step(method, tiny) > 0
    assert made == [(64, 32), (128, 128)]


def test_words_follow_intervals():
    row = {"low": None, "high": None, "a_runs": 1}
    assert word(row) == "one seed says little"
    assert word(row | {"a_runs": 5}) == "the published score is one run"
    row |= {"low": -0.2, "high": 0.4}
    assert word(row) == "reproduced within the spread of seeds"
    assert word(row | {"low": 0.1}) == "above" and word(row | {"high": -0.1}) == "below"


def test_a_page_without_runs_says_so(tmp_path):
    folder = write_page(tmp_path / "runs", tmp_path / "pages", "empty", "small")
    assert "No training is finished." in (folder / "README.md").read_text(encoding="utf-8")
    listed = (tmp_path / "pages" / "README.md").read_text(encoding="utf-8")
    assert "no number of a paper has been reproduced" in listed


def test_infocse_and_its_control_are_compared_in_pairs_of_seeds():
    infocse = {"seeds": [0, 1, 2], "scores": {"Avg.": [78.0, 77.0, 76.1]}}
    control = {"seeds": [2, 0, 1, 3], "scores": {"Avg.": [75.0, 77.0, 76.1, 9.0]}}
    row = against_control(infocse, control)
    assert (row["arm"], row["other"], row["word"]) == ("infocse", "simcse-control", "above")
    assert row["difference"] == pytest.approx(1.0) and 0 < row["low"] < 1 < row["high"]
    alone = against_control({"seeds": [0], "scores": {"Avg.": [78.0]}}, control)
    assert (alone["low"], alone["word"]) == (None, "one seed")
