"""Dev sets: what they score, and the verdict of a result against its checkpoint."""

import numpy as np
import pytest

from eval.dev import DevSet, verdict
from eval.sts import Pairs
from tests.eval.toys import spearman


def encode(texts):
    """Every text gets a vector of its own, the same each time."""
    return np.stack([np.random.default_rng(list(text.encode())).normal(size=8) for text in texts])


def test_pairs_are_scored_as_the_sts_tasks_are():
    pairs = Pairs(list("abcdef"), list("ghijkl"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    expected = {"dev_spearman": spearman(encode, pairs)}
    assert DevSet("dev_spearman", pairs).scores(encode) == expected


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
