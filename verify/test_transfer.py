"""Transfer accuracies on real features against one model at a time, digit for digit."""

import numpy as np
import pytest

from bench import transfer as plain
from eval.encode import Encode
from eval.transfer.tasks import tasks
from eval.transfer.validation import MODES, Judge
from models.encoder import load_encoder


@pytest.fixture(scope="module")
def features(minilm, data_dir):
    """Task name -> split -> float32 features and labels."""
    encoder, tokenizer = load_encoder(str(minilm))
    encode = Encode(encoder, tokenizer, encoder.max_length)

    def of(name):
        task = next(task for task in tasks() if task.name == name)
        splits = task.load(data_dir).values()
        return [(encode([text for (text,) in part.texts]), np.array(part.labels)) for part in splits]

    return of


def test_trec_equals_one_model_at_a_time(features):
    train, test = features("TREC")
    x, y = (np.concatenate(parts) for parts in zip(train, test, strict=True))
    rows = np.split(np.arange(len(y)), [len(train[1])])
    found = Judge(x, y, "test").crossed(*rows)
    assert (found.dev, found.test) == plain.crossed(MODES["test"], *train, *test)


def test_the_first_outer_split_of_mr_equals_one_model_at_a_time(features):
    [(x, y)] = features("MR")
    found = Judge(x, y, "test", outer=1).nested()
    assert (found.dev, found.test) == plain.nested(MODES["test"], x, y, outer=1)
