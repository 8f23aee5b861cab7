"""The command with a runner that only writes records."""

import json
from pathlib import Path

import pytest

from common.folders import commit
from eval.scores import row as score_row
from papers import results, runs
from papers.__main__ import main


def flags_of(argv):
    """The flags of a command as a dictionary; several values as one text."""
    flags = {}
    for word in argv:
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").partition("=")
            flags[name] = value
        else:
            flags[name] = f"{flags[name]} {word}".strip()
    return flags


class Task:
    """A task whose data need not be here."""

    def __init__(self, name):
        self.name = name

    def load(self, data_dir):
        assert data_dir == "corpora"


class Runner:
    """Stands for training and scoring; `asked` is what was trained, `broken` what fails and how."""

    def __init__(self, monkeypatch):
        self.asked, self.scored, self.broken = [], [], {}
        monkeypatch.setattr(runs, "launch", self.launch)
        monkeypatch.setattr(runs, "score", self.score)
        monkeypatch.setattr(results, "needed", lambda columns, data_dir: {"dev": [Task("dev")]})

    def launch(self, script, *argv):
        flags = flags_of(argv)
        self.asked.append(flags)
        if flags["seed"] in self.broken:
            raise self.broken[flags["seed"]]
        folder = Path(flags["output_dir"])
        runs.record_untrained(folder, {"seconds_of_last_start": 7.2, "steps": 4, "run_id": "r"})
        (folder / "made").mkdir()
        commit(folder / "made", folder / "checkpoint-4", {"run": "r"})
        (folder / "checkpoint-notes").mkdir()

    def score(self, folder, name, tasks, data_dir, model=None, **how):
        self.scored.append((folder.name, name, model, how))
        seed = folder.name.partition("_seed-")[2] or 0
        value = score_row("STS-B", "dev", "spearman", "single", 5, 80.0 + int(seed))
        (folder / f"{name}.json").write_text(json.dumps([value]))


@pytest.fixture
def runner(monkeypatch):
    return Runner(monkeypatch)


@pytest.fixture
def folders(tmp_path):
    return [f"--runs={tmp_path / 'runs'}", f"--output={tmp_path / 'results'}"]


@pytest.fixture
def filled(folders):
    def fill(*flags, name="infocse-5"):
        return main([name, "--backbone=mini", "--model=m", *folders, *flags])

    return fill
