"""The verdict of a result against its checkpoint."""

import numpy as np
import pytest

from eval.dev import ALIKE, verdict


@pytest.mark.parametrize(("shift", "word"), [(0.1, "better"), (-0.1, "worse"), (0, ALIKE)])
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
