"""NanoBEIR by name: from the hub's layout once, then from the folder that it left."""

import json
import os
import subprocess
import sys

import pytest

from common.errors import BadInput
from eval.retrieval.beir import BeirTask
from tests.data.conftest import hub  # noqa: F401 - a fixture
from tests.sources import ROOT

CARD = (
    "---\nconfigs:\n"
    + "".join(
        f"- config_name: {part}\n  data_files:\n  - split: train\n    path: {part}.jsonl\n"
        for part in ("corpus", "queries", "qrels")
    )
    + "---\n"
)


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_a_set_is_fetched_once_and_scored(hub, tiny_bert, tmp_path):  # noqa: F811
    hub.repo = "zeta-alpha-ai/NanoNQ"
    texts = ["a dog / and “a cat”\nby the river", "the sun", ""]
    hub.files = {
        "README.md": CARD.encode(),
        "corpus.jsonl": lines(*({"_id": f"d{i}", "text": text} for i, text in enumerate(texts))),
        "queries.jsonl": lines({"_id": "q0", "text": "a dog"}, {"_id": 'say "q1"', "text": "sunny"}),
        "qrels.jsonl": lines({"query-id": "q0", "corpus-id": "d0"}, {"query-id": 'say "q1"', "corpus-id": "d1"}),
    }
    command = [
        sys.executable,
        "-m",
        "eval",
        str(tiny_bert),
        "--pooling=avg",
        "--tasks",
        "nanonq",
        f"--data_dir={tmp_path}",
        f"--output={tmp_path / 'scores.json'}",
    ]
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "0"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    rows = json.loads((tmp_path / "scores.json").read_text())
    assert (rows[0]["task"], rows[0]["metric"], rows[0]["n"]) == ("NanoNQ", "ndcg@10", 2)
    found = BeirTask("NanoNQ").load(tmp_path)[""]
    assert found.corpus.texts(0, 3) == texts
    assert found.queries == {"q0": "a dog", 'say "q1"': "sunny"}
    assert found.grades == {"q0": {0: 1}, 'say "q1"': {1: 1}}


def test_a_set_that_cannot_be_found_is_one_error(tmp_path):
    with pytest.raises(BadInput, match=r"NanoFEVER: not found, and zeta-alpha-ai/NanoFEVER cannot be loaded from"):
        BeirTask("NanoFEVER").load(tmp_path)
    assert not list(tmp_path.iterdir())
