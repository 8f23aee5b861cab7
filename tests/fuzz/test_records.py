"""What runs leave behind: run.json, checkpoints, logs."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.folders import MANIFEST, filling
from export.facts import Facts, read_facts
from report.runs import read_run_folder
from tests.folders import checkpoint
from tests.fuzz.damage import MANY, as_json, damaged, result
from training.run_folder import (
    RUN_FILE,
    checkpoint_problem,
    facts_in,
    last_valid,
    open_run,
    read_run,
    write_run,
)

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
    start = result(open_run, str(folder), _RUN["trajectory"])
    if start is not None:
        assert parsed["trajectory"] == _RUN["trajectory"]
    exported = result(read_facts, folder)
    if exported is not None:
        assert isinstance(exported, Facts)
        for name in ("method", "dev_scores", "base_model"):
            getattr(exported, name)


@pytest.fixture(scope="module")
def valid_run(tmp_path_factory):
    """A run with two checkpoints and a best model, all of them small."""
    root = tmp_path_factory.mktemp("valid") / "run"
    write_run(root, _RUN | {"status": "running"})
    for step in (3, 6):
        checkpoint(root, step, best_metric=1.0)
    with filling(root / "best", {"run": "one", "step": 3, "value": 1.0}) as folder:
        (folder / "config.json").write_text("{}")
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
    same = content == valid or (path.name == MANIFEST and _values(content) == _values(valid))
    assert parsed == str(root / ("checkpoint-6" if same else "checkpoint-3"))
    assert (checkpoint_problem(root / "checkpoint-6", "one") is None) == same
    assert facts_in(root / "checkpoint-6") in ({"run": "one"}, {})
    path.write_bytes(valid)


def _values(content):
    """A JSON file without its white space; None if it is none."""
    try:
        return json.dumps(json.loads(content))
    except (ValueError, RecursionError):
        return None


_LOG = b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 0.1, "learning_rate": 1e-05}\n'


@MANY
@given(
    damaged(
        _LOG, [b'{"step": 3}\n', b"[" * 5000, b"NaN", b'"x"', b"1" * 5000, b"true", b"\xe2\x80\xa8"]
    )
)
def test_a_log_is_read_as_numbers_or_refused(tmp_path, content):
    (tmp_path / RUN_FILE).write_text(json.dumps(_RUN))
    (tmp_path / "log.jsonl").write_bytes(content)
    parsed = result(read_run_folder, "run", tmp_path, "scores.json")
    for line in parsed.history if parsed else []:
        assert "step" in line and all(type(value) in (int, float) for value in line.values())
