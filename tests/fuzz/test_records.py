"""What runs leave behind: run.json, checkpoints, logs, scores."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.prepare import HubFile, record
from eval.compare.sides import Score, from_files
from eval.scores import items_path, read_items, read_scores
from eval.vectors import VectorStore
from export.facts import Facts, read_facts
from report.runs import facts, read_run_folder
from tests.folders import checkpoint
from tests.fuzz.damage import MANY, as_json, damaged, result
from training.checkpoint import MANIFEST, commit, owner, problem, read_best
from training.folder import RUN_FILE, last_valid, open_run, read_run, run_id_of, write_run

_RUN = {
    "trajectory": {
        "seed": 1,
        "max_steps": 8,
        "start": "bert",
        "text": {"files": ["a"], "rows": 3},
    },
    "status": "finished",
    "run_id": "one",
    "settings": {"method": "simcse", "model_name_or_path": "bert", "learning_rate": 1e-5},
    "versions": {"torch": "2"},
    "hardware": {"device": "cpu"},
    "best": {"value": 71.5, "step": 4},
    "command": ["run"],
    "commit": "abc",
    "changed_files": 0,
    "seen_test_texts": {},
}


@MANY
@given(as_json(_RUN))
def test_the_record_of_a_run_is_read_or_refused_by_all_its_readers(tmp_path, content):
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    (folder / RUN_FILE).write_bytes(content)
    parsed = result(read_run, folder)
    if parsed is not None:
        assert isinstance(parsed["trajectory"], dict) and isinstance(parsed["status"], str)
    identity = result(run_id_of, folder)
    assert identity is None or isinstance(identity, str)
    start = result(open_run, str(folder), _RUN["trajectory"])
    if start is not None:
        assert parsed["trajectory"] == _RUN["trajectory"]
    exported = result(read_facts, folder)
    if exported is not None:
        assert isinstance(exported, Facts)
        for name in ("settings", "trajectory", "text", "method", "base_hash", "base_model", "text_terms"):
            getattr(exported, name)
    shown = result(read_run_folder, "run", folder, "scores.json")
    if shown is not None:
        assert all(isinstance(words, str) for words in facts(shown.record).values())


@pytest.fixture(scope="module")
def valid_run(tmp_path_factory):
    """A run with two checkpoints and a best model, all of them small."""
    root = tmp_path_factory.mktemp("valid") / "run"
    write_run(root, _RUN | {"status": "running"})
    for step in (3, 6):
        checkpoint(root, step, best_metric=1.0)
    (root / "partial").mkdir()
    (root / "partial" / "best.json").write_text('{"step": 3, "value": 1.0}')
    (root / "partial" / "config.json").write_text("{}")
    commit(root / "partial", root / "best", "one")
    return root


@MANY
@given(st.data())
def test_a_damaged_checkpoint_is_never_resumed(valid_run, tmp_path, data):
    root = tmp_path / "run"
    if not root.exists():
        shutil.copytree(valid_run, root)
    intact = data.draw(st.sampled_from(sorted(valid_run.glob("checkpoint-6/*"))))
    path, valid = root / intact.relative_to(valid_run), intact.read_bytes()
    content = data.draw(as_json(json.loads(valid)) if path.name == MANIFEST else damaged(valid))
    path.write_bytes(content)
    parsed = result(last_valid, root, "one")
    assert parsed == str(root / ("checkpoint-6" if content == valid else "checkpoint-3"))
    assert (problem(root / "checkpoint-6", "one") is None) == (content == valid)
    assert owner(root / "checkpoint-6") in ("one", None) or path.name == MANIFEST
    path.write_bytes(valid)


@MANY
@given(st.sampled_from(["manifest.json", "best.json"]), st.data())
def test_a_damaged_best_model_is_refused(valid_run, tmp_path, name, data):
    root = tmp_path / "run"
    if not root.exists():
        shutil.copytree(valid_run, root)
    valid = (valid_run / "best" / name).read_bytes()
    content = data.draw(as_json(json.loads(valid)))
    (root / "best" / name).write_bytes(content)
    assert (result(read_best, root, "one") is None) == (content != valid)
    result(last_valid, root, "one")
    (root / "best" / name).write_bytes(valid)


_LOG = b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 0.1, "learning_rate": 1e-05}\n'


@MANY
@given(damaged(_LOG, [b'{"step": 3}\n', b"[" * 5000, b"NaN", b'"x"', b"1" * 5000, b"true", b"\xe2\x80\xa8"]))
def test_a_log_is_read_as_numbers_or_refused(tmp_path, content):
    (tmp_path / RUN_FILE).write_text(json.dumps(_RUN))
    (tmp_path / "log.jsonl").write_bytes(content)
    parsed = result(read_run_folder, "run", tmp_path, "scores.json")
    for line in parsed.history if parsed else []:
        assert "step" in line and all(type(value) in (int, float) for value in line.values())


_ROW = {"task": "STS12", "split": "test", "mode": "test", "metric": "spearman"}
_ROW |= {"aggregation": "all", "n": 4, "value": 71.5}
_SCORES = [_ROW, _ROW | {"task": "STS-B"}, _ROW | {"aggregation": "mean", "value": 70}, _ROW | {"task": "Avg.", "n": 8}]


@MANY
@given(as_json(_SCORES))
def test_scores_are_read_or_refused(tmp_path, content):
    path = tmp_path / "scores.json"
    path.write_bytes(content)
    for row in result(read_scores, path) or []:
        assert row["n"] >= 1 and abs(row["value"]) < float("inf")
    side = result(from_files, "x", [path])
    if side is not None:
        assert set(side.headline) <= side.scores.keys()
        assert all(isinstance(score, Score) and str(score) for score in side.scores.values())


@pytest.fixture(scope="module")
def valid_items(tmp_path_factory):
    path = tmp_path_factory.mktemp("items") / "scores.json"
    numbers = np.arange(3.0)
    arrays = {"STS12|test|test|similarity": numbers, "STS12|test|test|gold": numbers, "x|test|mrr|value": numbers}
    np.savez(items_path(path), **arrays)
    return items_path(path).read_bytes()


@MANY
@given(st.data())
def test_figures_of_examples_are_read_or_refused(valid_items, tmp_path, data):
    scraps = [b"<U8", b"|O", b"<f2", b"(9999999999999,)", b"(-1,)", b"PK\x03\x04", b"c16", b"|"]
    items_path(tmp_path / "scores.json").write_bytes(data.draw(damaged(valid_items, scraps)))
    for arrays in (result(read_items, tmp_path / "scores.json") or {}).values():
        assert len({array.shape for array in arrays.values()}) == 1
        assert all(array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values())


@MANY
@given(as_json({"model": "a", "sha256": "b"}))
def test_a_folder_of_embeddings_is_claimed_or_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    accepted = []
    result(lambda: accepted.append(VectorStore(tmp_path).claim({"model": "a", "sha256": "b"})))
    if accepted:
        assert json.loads(content).items() >= {"model": "a", "sha256": "b"}.items()


@MANY
@given(as_json({"wiki.txt": {"sha256": "a" * 64, "revision": "main"}}))
def test_a_lock_of_downloads_is_read_or_refused(tmp_path, content):
    (tmp_path / "lock.json").write_bytes(content)
    path = tmp_path / "wiki.txt"
    path.touch()
    assert result(record, tmp_path / "lock.json", HubFile("a/b", path.name, path.name), path, None) is None
