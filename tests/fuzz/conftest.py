"""The long form of the fuzz tests continues where it was stopped.

`FUZZ_RECORD=runs/fuzz.jsonl` in the environment writes a line for each test that passed; one that passed with as many
examples before is left out. Delete the file after a change.
"""

import json
import os
from pathlib import Path

from tests.fuzz.damage import EXAMPLES

RECORD = Path(os.environ["FUZZ_RECORD"]) if "FUZZ_RECORD" in os.environ else None


def pytest_collection_modifyitems(config, items):
    if RECORD and RECORD.exists():
        rows = [json.loads(line) for line in RECORD.read_text().splitlines()]
        passed = {row["test"] for row in rows if row["examples"] >= EXAMPLES}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_logreport(report):
    if RECORD and report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        row = {"test": report.nodeid, "examples": EXAMPLES, "seconds": round(report.duration, 1)}
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        with RECORD.open("a") as file:
            file.write(json.dumps(row) + "\n")
