"""A method that is not in the repository: the example of CONTRIBUTING.md."""

import sys

import pytest
from safetensors.torch import load_file

import models.objectives
import run_unsup
from tests.docs.commands import blocks
from tests.folders import history, record
from tests.sources import ROOT


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The page's file in a folder that counts as a part of models/objectives."""
    [code] = blocks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "python")
    folder = tmp_path / "objectives"
    folder.mkdir()
    (folder / "toy.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(models.objectives, "__path__", [*models.objectives.__path__, str(folder)])
    yield code
    sys.modules.pop("models.objectives.toy", None)


def test_a_method_is_picked_up_from_its_one_file(toy, unsup, tmp_path, capsys):
    run_unsup.main(unsup("run", "toy", drop_rate=0.3, max_steps=4, save_steps=2))
    terms = [line for line in history(tmp_path / "run") if "alignment" in line]
    assert len(terms) == 4
    for line in terms:
        assert line["loss"] == pytest.approx(line["alignment"] + line["uniformity"], rel=1e-4)
    run_record = record(tmp_path / "run")
    assert (run_record["status"], run_record["settings"]["drop_rate"]) == ("finished", 0.3)
    assert load_file(tmp_path / "run" / "model.safetensors")
    with pytest.raises(SystemExit):
        run_unsup.main(["--method", "toy", "--help"])
    assert "--drop_rate" in capsys.readouterr().out
