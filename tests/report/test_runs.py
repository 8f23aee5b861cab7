"""What is read of a run folder, and what is refused."""

import json

from report.runs import facts, read_run_folder


def test_facts_hold_names_and_no_paths(tmp_path, write_run):
    shown = facts(read_run_folder("a", write_run(tmp_path / "a")).record)
    assert "secret" not in json.dumps(shown)
    assert shown["method"] == "simcse" and shown["text"] == "mine.txt (1,234 rows)"
    assert shown["commit"] == "efefefefefef, 2 changed files"
    assert shown["best dev score"] == "80.92 at step 375"
    assert shown["versions"] == "python 3.11.7, torch 2.13.0"
    assert shown["batch size"] == "not recorded"
    assert shown["temperature"] == shown["weights of the losses (lambda)"] == "none"
    assert "mini-bert" in shown.values()
    weighed = {"aux_weight": 1e-5, "rtd_weight": 0.005, "hard_negative_weight": 0.0}
    shown = facts({"settings": weighed, "status": "finished", "trajectory": {}})
    assert shown["weights of the losses (lambda)"] == "aux_weight 1e-05, rtd_weight 0.005"
