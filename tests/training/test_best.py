"""When the best model is written, and what `best/` has to be before a run resumes."""

import shutil

import pytest
from transformers import TrainerState

from common.errors import CheckpointRefused, NonFinite
from common.folders import MANIFEST, problem
from tests.folders import checkpoint
from tests.refusals import refused
from training import run_folder
from training.run_folder import BEST, Start, installing_result, open_run, read_best, write_run

SETTINGS = {"seed": 42}


def offer(root, value, step, best=None, main=True, run_id="one"):
    """Score a model whose only file names its step."""

    def save(folder):
        (folder / "config.json").write_text(str(step))

    state = TrainerState(global_step=step, best_metric=best, is_world_process_zero=main)
    run_folder.keep_if_best(root, run_id, state, "stsb_spearman", value, save)


@pytest.mark.parametrize(
    ("value", "best", "main", "kept"),
    [(-3, None, True, True), (7, 6.9, True, True), (7, 7, True, False), (7, 6.9, False, False)],
)
def test_a_model_better_than_all_is_kept_by_the_main_process(tmp_path, value, best, main, kept):
    offer(tmp_path, value, 4, best, main)
    assert (tmp_path / BEST).exists() is kept
    if kept:
        assert read_best(tmp_path, "one") == {"step": 4, "value": value}


@pytest.mark.parametrize("main", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_ends_all_processes_and_keeps_the_best(tmp_path, value, main):
    offer(tmp_path, 50.0, 2)
    with pytest.raises(NonFinite, match=r"stsb_spearman is (nan|inf) at step 4: lower --learning"):
        offer(tmp_path, value, 4, 50.0, main)
    assert read_best(tmp_path, "one")["step"] == 2


def test_a_better_model_replaces_the_one_before_and_becomes_the_result(tmp_path):
    offer(tmp_path, 50.0, 2)
    offer(tmp_path, 60.0, 4, 50.0)
    assert read_best(tmp_path, "one") == {"step": 4, "value": 60.0}
    assert [path.name for path in tmp_path.iterdir()] == [BEST]
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "config.json").write_text("old")
    (tmp_path / BEST / ".DS_Store").touch()
    with installing_result(tmp_path, "one") as folder:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text("{}")
        run_folder.copy_best(tmp_path, folder)
    assert problem(tmp_path) is None and (tmp_path / "config.json").read_text() == "4"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {BEST, "notes.txt", "1_Pooling", "config.json", MANIFEST}
    with pytest.raises(OSError, match="full"), installing_result(tmp_path, "one") as folder:
        (folder / "config.json").write_text("half")
        raise OSError("full")
    assert problem(tmp_path) is None and {path.name for path in tmp_path.iterdir()} == names


@pytest.fixture
def run(tmp_path):
    """A stopped run: a checkpoint of step 6, whose best score is 60, and that model, of step 4."""
    root = tmp_path / "run"
    write_run(root, {"trajectory": SETTINGS, "status": "running", "run_id": "one"})
    checkpoint(root, 6, best_metric=60.0)
    offer(root, 60.0, 4)
    return root


def lose(root):
    shutil.rmtree(root / BEST)


def damage(root):
    (root / BEST / "config.json").write_text("other")


EARLIER = r"scored 50\.0 at step 2, but .* checkpoint-6 .* 60\.0"
HARM = [(lose, "the best model is lost"), (damage, "config.json has changed since it was written")]
# An earlier best model of the run is back; there is that of another run, of a later step.
HARM += [(lambda root: offer(root, 50.0, 2), EARLIER)]
HARM += [(lambda root: offer(root, 60.0, 8, run_id="two"), "it belongs to another run")]


@pytest.mark.parametrize(("harm", "said"), HARM)
def test_a_run_whose_best_model_is_lost_or_not_its_own_is_refused_at_the_start(run, harm, said):
    assert open_run(str(run), SETTINGS) == Start(False, str(run / "checkpoint-6"))
    harm(run)
    refused(open_run, str(run), SETTINGS, match=said, error=CheckpointRefused)


def test_a_best_model_that_its_repeated_step_did_not_reach_is_kept(run):
    offer(run, 65.0, 5, 60.0)  # before a resume, which scored less at step 5
    assert open_run(str(run), SETTINGS) == Start(False, str(run / "checkpoint-6"))
    offer(run, 62.0, 8, 60.0)
    assert read_best(run, "one") == {"step": 5, "value": 65.0}
    damage(run)
    offer(run, 62.0, 8, 60.0)
    assert read_best(run, "one") == {"step": 8, "value": 62.0}


def test_a_best_model_of_a_later_step_is_found_again_by_the_resumed_run(run):
    offer(run, 65.0, 8, 60.0)
    damage(run)
    assert open_run(str(run), SETTINGS).checkpoint == str(run / "checkpoint-6")
    lose(run)
    refused(open_run, str(run), SETTINGS, match="the best model is lost", error=CheckpointRefused)
