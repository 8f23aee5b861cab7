"""Dev sets: what they score, and the verdict of a result against its checkpoint."""

import numpy as np
import pytest

from common.errors import BadInput
from eval.dev import in_words, pairs_set, search_set, verdict
from eval.retrieval.beir import BeirTask, tasks
from eval.sts import Pairs
from tests.eval.toys import spearman, write_beir


@pytest.fixture
def encode():
    """Every text gets a vector of its own, the same each time."""

    def encode(texts):
        return np.stack(
            [np.random.default_rng(list(text.encode())).normal(size=8) for text in texts]
        )

    return encode


def test_pairs_are_scored_as_the_sts_tasks_are(encode):
    pairs = Pairs(list("abcdef"), list("ghijkl"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    expected = {"dev_spearman": spearman(encode, pairs)}
    assert pairs_set("dev_spearman", pairs).scores(encode) == expected


DOCUMENTS = [{"_id": f"d{i}", "title": "", "text": f"text {i}"} for i in range(12)]


@pytest.fixture
def search_folder(tmp_path):
    queries = {f"q{i}": f"query {i}" for i in range(4)}
    dev = [(f"q{i}", f"d{i}", 1) for i in range(4)]
    return write_beir(tmp_path / "beir" / "mine", DOCUMENTS, queries, dev=dev)


@pytest.mark.parametrize("name", ["mine", "quora"])
def test_a_search_set_is_scored_as_eval_does(encode, tmp_path, name):
    """In Quora a query does not find the document of its own id."""
    judged, queries = [(f"d{i}", f"d{i + 4}", 1) for i in range(4)], {}
    for i in range(4):
        queries[f"d{i}"] = f"text {i}"
    folder = write_beir(tmp_path / "beir" / name, DOCUMENTS, queries, dev=judged)
    [task] = tasks([name], "dev")
    expected, plain = (
        scored.score(encode, tmp_path).rows[0]["value"] for scored in (task, BeirTask(name, "dev"))
    )
    assert (expected != plain) == (name == "quora")
    [score] = search_set(folder, ["dev"]).scores(encode).values()
    assert 0 < score == pytest.approx(expected)


def test_one_split_chooses_and_the_other_judges(encode, search_folder):
    head, qrels = "query-id\tcorpus-id\tscore\n", search_folder / "qrels"
    (qrels / "test.tsv").write_text(f"{head}q2\td2\t1\nq3\td3\t1\n")
    (qrels / "dev.tsv").write_text(f"{head}q1\td1\t1\nq0\td0\t1\n")
    task = search_set(search_folder, ["dev", "test"])
    items = {"value": np.array([0.5, 1.0, 0.25, 0.5])}
    assert task.score_of(items) == 75.0
    judged = task.verdict({"value": np.zeros(4)}, items)
    assert (judged["examples"], judged["result"]) == (2, 37.5)
    assert "from only 2 examples" in in_words(judged | {"metric": "search_ndcg"})
    assert task.items(encode)["value"].shape == (4,)
    (qrels / "dev.tsv").write_text(f"{head}q1\td1\t1\nq2\td0\t1\n")
    with pytest.raises(BadInput, match=r"query 'q2' is in qrels/dev\.tsv and qrels/test\.tsv"):
        search_set(search_folder, ["dev", "test"])


@pytest.mark.parametrize(
    ("shift", "word"), [(0.1, "better"), (-0.1, "worse"), (0.0, "not told apart")]
)
def test_a_verdict_needs_an_interval_beside_zero(shift, word):
    rng = np.random.default_rng(0)
    before = rng.uniform(0.2, 0.8, size=200)
    after = before + shift + rng.normal(scale=0.2, size=200)
    after += shift - (after - before).mean()  # the difference is exactly the shift
    judged = verdict({"value": before}, {"value": after})
    assert judged["verdict"] == word and judged["examples"] == 200
    assert judged["difference"] == pytest.approx(100 * shift, abs=1e-9)
    low, high = judged["interval"]
    # Of the mean of paired differences, in closed form.
    error = 100 * (after - before).std() / np.sqrt(200)
    ends = [100 * shift - 1.96 * error, 100 * shift + 1.96 * error]
    assert [low, high] == pytest.approx(ends, abs=0.3 * error)
