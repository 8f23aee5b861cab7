import math

import pytest

from report.curves import GAP, series
from report.reading import in_words, looks


def line(step, own, other, **more):
    return {"step": step, "eval_aux_mlm": own, "eval_aux_mlm_shuffled_cls": other, **more}


HISTORY = [{"step": 5, "loss": 9.0, "aux_mlm": 6.0}, line(10, 6.0, 6.1, tokens=1000), line(20, 5.5, 6.0, tokens=2000),
           line(30, 5.0, 6.0, tokens=3000)]  # fmt: skip


def test_the_gap_is_what_a_neighbours_vector_costs():
    assert [look.gap for look in looks(HISTORY)] == pytest.approx([0.1, 0.5, 1.0])
    steps, values = series(HISTORY)[GAP]
    assert steps == [10, 20, 30] and values == pytest.approx([0.1, 0.5, 1.0])
    assert GAP not in series([{"step": 1, "contrastive": 1.0}])


def test_a_log_that_is_not_whole_ends_no_report():
    assert looks([{"step": 1, "eval_aux_mlm_shuffled_cls": 6.0}]) == []
    assert "hardly reads" in in_words([line(10, math.nan, 6.0)])


def test_words_say_whether_and_since_when_the_vector_is_read():
    assert "reads the sentence vector (loss 5.000 with the own [CLS], 6.000" in in_words(HISTORY)
    assert in_words(HISTORY).endswith("clearly from step 20 (2,000 tokens) on")
    assert "hardly reads the sentence vector" in in_words(HISTORY[:2])
    assert in_words([line(10, 5.0, 6.0)]).endswith("clearly from step 10 on"), "older logs have no tokens"
    assert in_words(HISTORY[:1]) is None
