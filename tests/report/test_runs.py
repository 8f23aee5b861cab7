"""What is read of a run folder, and what is refused."""

import json

from report.runs import facts, read_run_folder


def test_facts_hold_names_and_no_paths(tmp_path, write_run):
    found = facts(read_run_folder("a", write_run(tmp_path / "a"), "scores.json").record)
    assert "secret" not in json.dumps(found)
    assert {name: found[name] for name in ("method", "seed", "steps", "text", "initial model", "commit")} == {
        "method": "simcse",
        "seed": "3",
        "steps": "20",
        "text": "wiki.txt (1,000 rows)",
        "initial model": "mini-bert",
        "commit": "0123456789ab, 2 changed files",
    }
    assert found["best dev score"] == "71.50 at step 10"
    assert found["versions"] == "python 3.11.7, torch 2.13.0"
    assert found["batch size"] == "not recorded"
    assert found["temperature"] == found["weights of the losses (lambda)"] == "none"
    weighed = {"aux_weight": 1e-5, "rtd_weight": 0.005, "hard_negative_weight": 0.0}
    found = facts({"settings": weighed, "status": "finished", "trajectory": {}})
    assert found["weights of the losses (lambda)"] == "aux_weight 1e-05, rtd_weight 0.005"


def test_what_is_missing_is_none_and_no_error(tmp_path, write_run):
    folder = write_run(tmp_path / "a")
    (folder / "log.jsonl").unlink()
    run = read_run_folder("a", folder, "scores.json")
    assert (run.history, run.scores) == ([], None)
    (folder / "scores.json").write_text("[\n\n]\n")
    assert read_run_folder("a", folder, "scores.json").scores is None
