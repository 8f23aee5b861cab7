"""SentEval cannot be installed from an index: a stand-in calls the hooks the way its engine and STS evaluator do."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.encode import Encode
from eval.sts import Pairs, read_columns, spearman
from export.senteval_engine import hooks
from models.encoder import load_encoder


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
    encoder, tokenizer = load_encoder(str(tiny_bert), pooling="avg")
    return Encode(encoder, tokenizer, encoder.max_length)


def test_the_engine_finds_our_figure(encode, dev_file):
    read = read_columns(dev_file, "score", "sentence1", "sentence2")
    # A sentence and itself have cosine 1 here, and 1 give or take float32's rounding where each is encoded anew: such
    # pairs would be tied in one and ordered by chance in the other.
    rows = [row for row in zip(read.left, read.right, read.gold, strict=True) if row[0] != row[1]]
    pairs = Pairs(*map(list, zip(*rows, ("", "two words", 1.0), ("one  word", "", 2.0), strict=True)))
    prepare, batcher = hooks(encode)
    assert Engine({"batch_size": 7}, batcher, prepare).eval(pairs) == pytest.approx(spearman(encode, pairs), abs=1e-4)


def test_tokens_are_joined_and_none_are_the_empty_text(encode):
    prepare, batcher = hooks(encode)
    assert prepare(Params(), [["a"]]) is None
    found = batcher(Params(), [["A", "dog", "."], [], [b"caf\xc3\xa9"]])
    assert found.shape == (3, 32) and found.dtype == np.float32
    assert np.array_equal(found, encode(["A dog .", "", "café"]))
