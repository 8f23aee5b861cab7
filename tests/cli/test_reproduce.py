import json

import pytest

import reproduce
import run_unsup
from common.errors import BadInput
from tests.folders import record


def test_a_run_is_reproduced_and_a_changed_one_is_not(unsup, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"sentence number {n} is here" for n in range(40)) + "\n")
    run_unsup.main(unsup(method="simcse", train_file=text, max_steps=2, save_steps=2))
    run = str(tmp_path / "run")
    reproduce.main([run])
    assert "equal: model.safetensors" in capsys.readouterr().out
    assert record(tmp_path / "run-again")["status"] == "finished"

    with pytest.raises(BadInput, match="the run there has finished and would prove nothing"):
        reproduce.main([run])
    with pytest.raises(BadInput, match="the run there has finished and would prove nothing"):
        reproduce.main([run, "--output", run])

    text.write_text("\n".join(f"sentence number {n} is there" for n in range(40)) + "\n")
    with pytest.raises(reproduce.Unequal, match=r"changed: text: was .*, is now "):
        reproduce.main([run, "--output", str(tmp_path / "third")])
    assert "unequal: model.safetensors" in capsys.readouterr().out
    assert reproduce.Unequal.exit_code == 1


def test_a_record_of_another_script_is_refused_before_the_training(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    run = {
        "status": "finished",
        "trajectory": {},
        "script": "rm.py",
        "command": ["python", "rm.py"],
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(BadInput, match="only a finished run"):
        reproduce.main([str(tmp_path)])


def test_a_stopped_run_of_other_code_is_not_resumed_for_a_comparison(finished, tmp_path):
    again = tmp_path / "run-again"
    again.mkdir()
    begun = record(finished) | {"status": "running"}
    for name in ("commit", "versions"):
        (again / "run.json").write_text(json.dumps(begun | {name: "another"}))
        with pytest.raises(
            BadInput, match=f"was started with a different {name.removesuffix('s')}"
        ):
            reproduce.main([str(finished)])
    (again / "run.json").write_text(json.dumps(begun))
    reproduce.main([str(finished)])
