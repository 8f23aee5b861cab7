"""Commands whose reader goes away, with the libraries that print while they work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import eval.__main__
import eval.compare.__main__
from tests.sources import ROOT


def test_training_continues_when_its_output_is_closed(unsup, tmp_path):
    """The Trainer prints a line of its log on standard output after every step."""
    command = [sys.executable, str(ROOT / "run_unsup.py"), *unsup(method="simcse", dev="none", max_steps=4)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_files_are_written_before_anything_is_printed(tiny_bert, dev_file, tmp_path, monkeypatch):
    scores, compared, there = tmp_path / "scores.json", tmp_path / "compared.json", []
    for module in (eval.__main__, eval.compare.__main__):
        monkeypatch.setattr(module, "show", lambda text, kept: there.append(Path(kept).exists()))
    eval.__main__.main([str(tiny_bert), "--dev_file", str(dev_file), "--pooling", "avg", "--output", str(scores)])
    eval.compare.__main__.main([str(scores), str(scores), "--output", str(compared)])
    assert there == [True, True]
