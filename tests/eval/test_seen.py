"""Which test sentences were in the training text, counted by hand."""

import pytest

from eval.seen import in_words, marked, seen_texts
from eval.sts.files import Pairs
from eval.sts.tasks import StsTask

PAIRS = {"": Pairs(["a dog", "a cat", "a dog"], ["two dogs", "a cat", "a bird"], [1.0, 5.0, 2.0])}
TASK = StsTask("own", "test", lambda _: PAIRS, None)


def test_distinct_sentences_are_counted_once():
    seen = seen_texts(iter(["a  dog", "a bird ", "a dog", "a fish"]), [TASK, object()], ".")
    assert seen == {"own": {"seen": 2, "sentences": 4}}
    assert in_words(seen) == "the training text holds test sentences: own 2 of 4"
    rows = marked([{"task": "own", "value": 1.0}, {"task": "Avg.", "value": 1.0}], seen)
    assert rows == [{"task": "own", "value": 1.0, "seen_in_training": 0.5}, {"task": "Avg.", "value": 1.0}]


@pytest.mark.parametrize("text", [[], ["a dog, a cat"]])
def test_nothing_seen_is_said_as_zero(text):
    seen = seen_texts(iter(text), [TASK], ".")
    assert seen == {"own": {"seen": 0, "sentences": 4}}
    assert in_words(seen) == ""
