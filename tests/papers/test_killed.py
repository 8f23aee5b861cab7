"""`python -m papers` killed while it writes records and tables; a run itself is killed in tests/faults."""

import json
from pathlib import Path

import pytest

from eval.scores import row as score_row
from eval.scores import write_rows
from papers import runs
from papers.__main__ import main
from tests.faults.forked import check_kills


@pytest.fixture
def trains_nothing(runner, monkeypatch):
    """A run is its record and its scores, both written as they always are."""

    def launch(script, argv):
        flags = dict(flag.removeprefix("--").split("=", 1) for flag in argv)
        runs.record_untrained(Path(flags["output_dir"]), {"seconds_of_last_start": 7.2, "steps": 4, "run_id": "r"})

    def score(folder, name, tasks, data_dir, model=None, **how):
        path = folder / f"{name}.json"
        if not path.is_file():
            write_rows(path, [score_row("STS-B", "dev", "spearman", "single", 5, 80.0)])

    monkeypatch.setattr(runs, "launch", launch)
    monkeypatch.setattr(runs, "score", score)


def test_a_killed_command_goes_on_and_ends_with_the_same_table(trains_nothing, tmp_path):
    def fill(folder):
        main(["infocse-5", "--backbone=mini", "--model=m", "--seeds", "0", "1", f"--runs={folder / 'runs'}",
              f"--output={folder / 'results'}"])  # fmt: skip

    def placed(folder):
        files = [*folder.glob("results/*.json"), *folder.glob("results/*.md"), *folder.glob("runs/*/*.json")]
        found = {str(path.relative_to(folder)): path.read_text() for path in files}
        assert all(json.loads(text) for name, text in found.items() if name.endswith(".json"))
        return {name: text.replace(str(folder), "") for name, text in found.items()}

    check_kills(fill, tmp_path, placed, 5)
