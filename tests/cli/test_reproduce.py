import json

import pytest

import reproduce
import run_unsup
from common.errors import BadInput


def test_a_run_is_reproduced_and_a_changed_one_is_not(unsup, tmp_path, capsys, dev_file):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"sentence number {n} is here" for n in range(40)) + "\n")
    words = unsup(method="simcse", train_file=text, max_steps=2, save_steps=2)
    run_unsup.main([word.replace("--output_dir", "--output-dir") for word in words])  # a second spelling of each flag
    reproduce.main([str(tmp_path / "run")])
    assert "equal: model.safetensors" in capsys.readouterr().out
    assert json.loads((tmp_path / "run-again" / "run.json").read_text())["status"] == "finished"

    with pytest.raises(BadInput, match="the run there has finished, so it would show nothing"):
        reproduce.main([str(tmp_path / "run")])
    with pytest.raises(BadInput, match="is the run itself"):
        reproduce.main([str(tmp_path / "run"), "--output", str(tmp_path / "run")])
    with pytest.raises(BadInput, match=r"is no run of this project: it has no run\.json"):
        reproduce.main([str(tmp_path)])

    text.write_text("\n".join(f"sentence number {n} is there" for n in range(40)) + "\n")
    with pytest.raises(reproduce.Unequal, match=r"differing: text: .* then, .* now"):
        reproduce.main([str(tmp_path / "run"), "--output", str(tmp_path / "third")])
    assert "unequal: model.safetensors" in capsys.readouterr().out
    assert reproduce.Unequal.exit_code == 1


def test_only_a_finished_run_of_a_known_script_is_run_again(tmp_path):
    record = {"run_id": "x", "trajectory": {}, "status": "finished", "script": "rm.py", "command": ["python", "rm.py"]}
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(BadInput, match="only a finished run"):
        reproduce.main([str(tmp_path)])


@pytest.mark.parametrize("damage", [{"command": None}, {"command": "python"}, {"command": [1, 2, 3]}, {"versions": 3},
                                    {"hardware": None}])  # fmt: skip
def test_a_record_without_what_is_needed_is_refused_before_the_training(tmp_path, damage):
    (tmp_path / "model.safetensors").write_bytes(b"")
    record = {"trajectory": {}, "status": "finished", "script": "run_unsup.py", "versions": {}, "hardware": {}}
    (tmp_path / "run.json").write_text(json.dumps(record | {"command": ["python", "run_unsup.py"]} | damage))
    with pytest.raises(BadInput, match=f"{next(iter(damage))}' is no .*, so the run cannot be started again"):
        reproduce.main([str(tmp_path)])


def test_a_stopped_run_of_other_code_is_no_part_of_a_comparison(unsup, tmp_path, text_file, dev_file):
    run_unsup.main(unsup(method="simcse", max_steps=2, save_steps=2))
    again = tmp_path / "run-again"
    record = json.loads((tmp_path / "run" / "run.json").read_text()) | {"status": "running"}
    for name in ("commit", "versions"):
        again.mkdir(exist_ok=True)
        (again / "run.json").write_text(json.dumps(record | {name: "another"}))
        with pytest.raises(BadInput, match=f"was begun with another {name}"):
            reproduce.main([str(tmp_path / "run")])
    (again / "run.json").write_text(json.dumps(record))
    reproduce.main([str(tmp_path / "run")])
