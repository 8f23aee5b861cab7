"""What runs leave behind: run.json and logs."""

import json

from hypothesis import given

from export.facts import Facts, read_facts
from report.runs import read_run_folder
from tests.fuzz.damage import MANY, as_json, damaged, result
from training.run_folder import (
    RUN_FILE,
    open_run,
    read_run,
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
    parsed = result(read_run_folder, "run", tmp_path)
    for line in parsed.history if parsed else []:
        assert "step" in line and all(type(value) in (int, float) for value in line.values())
