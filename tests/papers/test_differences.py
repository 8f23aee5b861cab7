"""The statistic of the pages, against numbers worked out by hand and scipy's own test."""

import math

import pandas as pd
import pytest
from scipy import stats

from papers.differences import described, holm, over_seeds


def test_the_interval_and_p_are_students_over_the_differences_of_seeds():
    two = over_seeds(pd.Series([1.0, 3.0]))  # standard error 1, t(0.975, 1) = 12.706
    assert [round(value, 2) for value in (two.mean, two.low, two.high)] == [2.0, -10.71, 14.71]
    assert math.isnan(two.p), "two seeds show no order"
    values = [0.4, 0.9, 0.7, 1.5]
    four, known = over_seeds(pd.Series(values)), stats.ttest_1samp(values, 0)
    assert four.p == pytest.approx(known.pvalue)
    assert (four.low, four.high) == pytest.approx(tuple(known.confidence_interval(0.95)))


def test_holm_multiplies_the_smallest_p_by_the_number_of_comparisons():
    # sorted 0.01, 0.02, 0.03, 0.5: times 4, 3, 2, 1, never below the one before
    adjusted = holm([0.03, math.nan, 0.01, 0.5, 0.02])
    assert math.isnan(adjusted[1])
    assert [adjusted[i] for i in (0, 2, 3, 4)] == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.6, 0.9]) == [1, 1]


READINGS = {"above": [1.0, 1.1, 1.2], "below": [-1.0, -1.1, -1.2], "level": [-0.1, 0.1, 0.0]}
READINGS |= {"above, by less than 0.5": [0.3, 0.31, 0.32], "not told apart": [-1.0, 1.0, 0.5]}
READINGS |= {"two seeds": [5.0, 5.1], "one seed": [5.0], "no pair": []}


@pytest.mark.parametrize(("reading", "differences"), READINGS.items())
def test_words_follow_the_interval_and_the_adjusted_p(reading, differences):
    difference = over_seeds(pd.Series(differences, dtype=float))
    assert described(difference, difference.p)[-1] == reading
    if reading in ("above", "below"):
        assert described(difference, 0.2)[-2:] == ["0.200", "not told apart"]
