"""How a command begins in a folder: new, resumed, finished or refused."""

from types import SimpleNamespace

import pytest

from common.errors import BadInput, CheckpointRefused
from common.files import writing
from report.runs import read_run_folder
from tests.folders import STATE, checkpoint
from tests.refusals import refused
from training import run_arguments, run_folder
from training.provenance import contents
from training.run_arguments import determines_weights
from training.run_folder import RUN_FILE, Start, installing_result, last_valid, open_run, write_run
from training.stages import new_record

SETTINGS = {"seed": 42, "learning_rate": 3e-5, "method": "simcse", "views": [0, 1], "dropout": None}
RECORD = {"trajectory": SETTINGS, "status": "running", "run_id": "one"}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    write_run(folder, RECORD)
    return folder


def refusal(error, folder, settings=SETTINGS):
    if (folder / RUN_FILE).is_file():
        (folder / "best").mkdir(exist_ok=True)  # something that was trained
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    message = refused(open_run, str(folder), settings, error=error)
    assert str(folder) in message
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return message


def test_a_new_or_empty_folder_starts_at_step_0_and_nothing_is_written(tmp_path):
    """Half a record of a killed command is not a run either, and is removed by the next."""
    assert open_run(str(tmp_path / "new" / "deep"), SETTINGS) == Start(False, None)
    assert not (tmp_path / "new").exists()
    assert open_run(str(tmp_path), SETTINGS) == Start(False, None)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f".{RUN_FILE}.1a2b3c4d.part").write_text("{")
    (tmp_path / ".infocse.lock").touch()
    assert open_run(str(tmp_path), SETTINGS) == Start(False, None)
    write_run(tmp_path, RECORD)
    run_folder.clean(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {RUN_FILE, ".infocse.lock"}


def test_of_two_writers_of_a_file_each_leaves_a_whole_one(tmp_path):
    with writing(tmp_path / "file") as slow:
        slow.write_text("of the slower")
        with writing(tmp_path / "file") as fast:
            fast.write_text("of the faster")
        assert (tmp_path / "file").read_text() == "of the faster"
    assert (tmp_path / "file").read_text() == "of the slower" and len([*tmp_path.iterdir()]) == 1


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "not a run of this project" in refusal(BadInput, tmp_path)
    checkpoint(tmp_path / "other", 5)
    assert "not a run of this project" in refusal(BadInput, tmp_path / "other")


def test_a_run_that_saved_nothing_starts_again_also_with_other_settings(run):
    """A setting without effect does not differ."""
    write_run(run, RECORD | {"trajectory": SETTINGS | {"do_train": True}})
    assert open_run(str(run), dict(SETTINGS)) == Start(False, None)
    other = SETTINGS | {"seed": 43}
    assert open_run(str(run), other) == Start(False, None)
    checkpoint(run, 5)
    assert open_run(str(run), SETTINGS).checkpoint
    assert "(seed: 42 there, 43 now)" in refusal(CheckpointRefused, run, other)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"learning_rate": 1e-5}, "learning_rate: 3e-05 there, 1e-05 now"),
        ({"views": [1, 0]}, "views: [0, 1] there, [1, 0] now"),
        ({"dropout": 0.0}, "dropout: None there, 0.0 now"),
        ({"aux_weight": 0.5}, "aux_weight: None there, 0.5 now"),
        ({"seed": 1, "method": "x"}, "method: simcse there, x now; seed: 42 there, 1 now"),
        ({"seed": None}, "seed: 42 there, None now"),  # left out, which is the same
    ],
)
def test_other_settings_are_refused_with_their_old_and_new_values(run, change, said):
    checkpoint(run, 5)
    now = {name: value for name, value in (SETTINGS | change).items() if name != "seed" or value}
    assert f"({said})" in refusal(CheckpointRefused, run, now), "these and no other"


def test_every_argument_of_the_library_that_determines_weights_is_one_of_its_names():
    """A misspelt one would let a run resume with another value; some are of other releases."""
    renamed = {"warmup_ratio", "activation_checkpointing", "train_sampling_strategy"}
    assert run_arguments._DECISIVE - run_arguments._THEIRS <= renamed
    decided = {"learning_rate": True, "save_steps": False, "temperature": True, "train_file": False}
    assert {name: determines_weights(name) for name in decided} == decided


def test_each_of_several_folders_in_a_setting_is_identified_by_its_files(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
    a, b = str(tmp_path / "one"), str(tmp_path / "two")
    (tmp_path / "one" / "1_Pooling").mkdir()
    (tmp_path / "one" / "1_Pooling" / "config.json").write_text("{}")
    found = contents({"x": a})["x"]
    assert "1_Pooling/config.json" in found
    for state in ("checkpoint-3", "best"):  # removing them from a run changes no model
        (tmp_path / "one" / state).mkdir()
        (tmp_path / "one" / state / "config.json").write_text("{}")
    assert contents({"x": a})["x"] == found
    older = {"contents": {"x": found | {"checkpoint-3/config.json": "0", "best/config.json": "1"}}}
    assert run_folder.differing(older, {"contents": {"x": found}}) == []
    assert contents({"teacher": ["self"], "rates": [0.1, 0.2], "seed": 1, "name": ""}) == {}
    of_two = {"1": "self", "2 config.json": contents({"x": b})["x"]["config.json"]}
    assert contents({"teacher": ["self", b]}) == {"teacher": of_two}
    several = [a, b], [b, a], [a], ["hub/id", b]
    assert len({str(contents({"teacher": given})) for given in several}) == 4


@pytest.mark.parametrize("missing", STATE)
def test_an_incomplete_checkpoint_is_passed_over_and_without_another_refused(run, missing):
    checkpoint(run, 10, without=missing)
    said = f"none of the 1 checkpoints is valid (checkpoint-10: {missing} is missing)"
    assert said in refusal(CheckpointRefused, run)
    also = ("rng_state_0.pth", "rng_state_1.pth")  # of two processes
    checkpoint(run, 5, without="rng_state.pth", also=also)
    assert last_valid(run, "one") == str(run / "checkpoint-5")


def test_the_newest_checkpoint_is_that_of_the_highest_step_and_what_resembles_one_is_ignored(run):
    for name in ("best", "", "777-old", "x-999", "-3"):
        checkpoint(run, f"checkpoint-{name}")
    (run / "checkpoint-999").write_text("a file")
    assert last_valid(run, "one") is None
    for step in (5, 100, 20):
        checkpoint(run, step)
    assert open_run(str(run), SETTINGS) == Start(False, str(run / "checkpoint-100"))


@pytest.mark.parametrize("status", ["running", "finished"])
def test_a_run_of_a_newer_version_is_refused(run, status):
    with installing_result(run, "one"):
        write_run(run, RECORD | {"format": run_folder.FORMAT, "status": status})
    checkpoint(run, 5)
    open_run(str(run), SETTINGS)
    write_run(run, RECORD | {"format": run_folder.FORMAT + 1, "status": status, "settings": {}})
    said = f"has format {run_folder.FORMAT + 1}, but this version reads {run_folder.FORMAT}; update"
    assert said in refusal(CheckpointRefused, run)
    refused(read_run_folder, "run", run, match=said, error=CheckpointRefused)


def test_a_checkpoint_of_another_version_is_passed_over_and_says_so(run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("common.folders.FORMAT", 2)
        newer = checkpoint(run, 5)
    said = "infocse.json has format 2, but this version reads 1; update"
    assert run_folder.checkpoint_problem(newer, "one").startswith(said)
    assert said in refusal(CheckpointRefused, run)


@pytest.mark.parametrize("name", ["tokenizer.json", "infocse.json"])
def test_the_result_of_a_finished_run_must_be_unchanged(run, name):
    with installing_result(run, "one") as folder:
        (folder / "tokenizer.json").write_text("{}")
    write_run(run, RECORD | {"status": "finished"})
    assert open_run(str(run), SETTINGS) == Start(True, None)
    (run / name).unlink()
    assert f"{name} is missing; the run has finished" in refusal(CheckpointRefused, run)


def test_a_hash_named_like_a_flag_which_no_resume_would_compare_is_refused():
    values = {"dev_file": "pairs.tsv", "dry_run": True}
    settings = SimpleNamespace(args=SimpleNamespace(world_size=1), values=values, given=())
    with pytest.raises(AssertionError, match="dev_file"):
        new_record(settings, {"dev_file": "its sha256"})
