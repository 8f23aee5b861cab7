"""Other evaluations give our figure: MTEB, which reads an export, and SentEval through its hooks.

SentEval cannot be installed from an index: a stand-in calls the hooks the way its engine and STS evaluator do.
"""

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.sts import Pairs
from export.senteval_engine import hooks
from models.encoder import SentenceEncoder
from models.loading import load_backbone, load_tokenizer
from tests.encoders import encode_of, unequal_pairs
from tests.eval.toys import spearman


class Params(dict):
    """SentEval's dotdict."""

    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


class Engine:
    """SE and STSEval in few lines: split sentences, sorted by length, batches, cosine, Spearman."""

    def __init__(self, params, batcher, prepare=None):
        self.params, self.batcher, self.prepare = Params(params), batcher, prepare
        self.params.batch_size = params.get("batch_size", 128)

    def eval(self, pairs):
        left, right = ([text.split() for text in texts] for texts in (pairs.left, pairs.right))
        self.prepare(self.params, left + right)
        rows = sorted(zip(left, right, pairs.gold, strict=True), key=lambda row: (len(row[0]), len(row[1]), row[2]))
        cosines = []
        for start in range(0, len(rows), self.params.batch_size):
            batch = rows[start : start + self.params.batch_size]
            one, other = (self.batcher(self.params, [row[side] for row in batch]) for side in (0, 1))
            assert one.shape == other.shape == (len(batch), one.shape[1])
            norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
            cosines += list((one * other).sum(1) / norms)
        return 100 * spearmanr(cosines, [row[2] for row in rows]).statistic


@pytest.fixture(scope="module")
def encode(tiny_bert):
    return encode_of(tiny_bert, "avg")


def test_the_engine_finds_our_figure(encode, dev_file):
    pairs = unequal_pairs(dev_file) + Pairs(["", "one  word"], ["two words", ""], [1.0, 2.0])
    prepare, batcher = hooks(encode)
    assert Engine({"batch_size": 7}, batcher, prepare).eval(pairs) == pytest.approx(spearman(encode, pairs), abs=1e-4)


def test_tokens_are_joined_and_none_are_the_empty_text(encode):
    prepare, batcher = hooks(encode)
    assert prepare(Params(), [["a"]]) is None
    found = batcher(Params(), [["A", "dog", "."], [], [b"caf\xc3\xa9"]])
    assert found.shape == (3, 32) and found.dtype == np.float32
    assert np.array_equal(found, encode(["A dog .", "", "café"]))


def test_mteb_finds_our_spearman(tiny_bert, dev_file, tmp_path):
    mteb = pytest.importorskip("mteb", reason="requirements-extra.txt has it")
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
    from sentence_transformers import SentenceTransformer

    pairs = unequal_pairs(dev_file)

    class OwnPairs(AbsTaskSTS):
        metadata = TaskMetadata(
            name="OwnPairs",
            description="Graded pairs of this repository's tests.",
            dataset={"path": "none/none", "revision": "none"},
            type="STS",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )
        min_score = 0
        max_score = 5

        def load_data(self, num_proc=None, **_):
            columns = {"sentence1": pairs.left, "sentence2": pairs.right, "score": pairs.gold}
            self.dataset, self.data_loaded = {"test": Dataset.from_dict(columns)}, True

    SentenceEncoder(load_backbone(str(tiny_bert)), "avg", None, 64).save(str(tmp_path), load_tokenizer(str(tiny_bert)))
    ours = spearman(encode_of(tmp_path), pairs)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    result = mteb.evaluate(model, OwnPairs(), cache=None, encode_kwargs={"show_progress_bar": False})
    theirs = result.task_results[0].scores["test"][0]["cosine_spearman"]
    assert 100 * theirs == pytest.approx(ours, abs=1e-4)
