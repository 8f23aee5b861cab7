"""NanoBEIR by name, from the hub once and then from the folder that this leaves."""

import pytest
from datasets import Dataset

from common.errors import BadInput
from eval.retrieval import beir


def test_a_set_is_fetched_once(tmp_path, monkeypatch):
    texts = ["a dog / and “a cat”\nby the river", "the sun", ""]
    parts = {
        "corpus": [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)],
        "queries": [{"_id": "q0", "text": "a dog"}, {"_id": 'say "q1"', "text": "sunny"}],
        "qrels": [
            {"query-id": "q0", "corpus-id": "d0"},
            {"query-id": 'say "q1"', "corpus-id": "d1"},
        ],
    }

    def load_dataset(source, part, split):
        assert (source, split) == ("zeta-alpha-ai/NanoNQ", "train")
        return Dataset.from_list(parts.pop(part))

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    for _ in range(2):
        data = beir.BeirTask("NanoNQ").load(tmp_path)[""]
    assert [*data.corpus.values()] == texts
    assert data.queries == {"q0": "a dog", 'say "q1"': "sunny"}
    assert data.grades == {"q0": {"d0": 1}, 'say "q1"': {"d1": 1}}


def test_a_set_that_cannot_be_found_is_one_error(tmp_path):
    with pytest.raises(
        BadInput, match=r"NanoFEVER: not found, and zeta-alpha-ai/NanoFEVER cannot be loaded from"
    ):
        beir.BeirTask("NanoFEVER").load(tmp_path)
    assert not list(tmp_path.iterdir())
