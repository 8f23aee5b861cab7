"""Which test sentences were in the training text, counted by hand."""

import pytest

from eval.contamination import count_seen, describe_seen, with_share_seen
from eval.sts import Pairs, StsTask

PAIRS = {"": Pairs(["a dog", "a cat", "a dog"], ["two dogs", "a cat", "a bird"], [1.0, 5.0, 2.0])}
TASK = StsTask("own", "test", lambda _: PAIRS, None)


def test_distinct_sentences_are_counted_once():
    seen = count_seen(iter(["a  dog", "a bird ", "a dog", "a fish"]), [TASK, object()], ".")
    assert seen == {"own": {"seen": 2, "sentences": 4}}
    assert describe_seen(seen) == "the training text holds test sentences: own 2 of 4"
    rows = with_share_seen([{"task": "own", "value": 1.0}, {"task": "Avg.", "value": 1.0}], seen)
    assert rows == [{"task": "own", "value": 1.0, "seen_in_training": 0.5}, {"task": "Avg.", "value": 1.0}]


@pytest.mark.parametrize("text", [[], ["a dog, a cat"]])
def test_nothing_seen_is_said_as_zero(text):
    seen = count_seen(iter(text), [TASK], ".")
    assert seen == {"own": {"seen": 0, "sentences": 4}}
    assert describe_seen(seen) == ""
