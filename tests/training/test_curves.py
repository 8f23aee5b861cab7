"""The curves of a training log, and what the auxiliary losses say."""

import math
import re

import pytest

from tests.sources import ROOT
from training import curves
from training.curves import INCREASE, auxiliary_losses, describe_collapse, describe_conditioning


def losses(step, loss, shuffled, **more):
    return {"step": step, "eval_aux_mlm": loss, "eval_aux_mlm_shuffled_cls": shuffled, **more}


STEP = {"step": 5, "loss": 9.0, "aux_mlm": 6.0, "epoch": 0.1, "grad_norm": 1.0}
READING = [STEP | {"learning_rate": 1e-5}, losses(10, 6.0, 6.1, tokens=1000)]
READING += [losses(20, 5.5, 6.0, tokens=2000), losses(30, 5.0, 6.0, tokens=3000)]
READING.append({"step": 30, "train_runtime": 5.0, "train_loss": 1.5, "total_flos": 0.0})


def test_a_curve_has_the_steps_and_values_of_one_name_and_one_is_what_a_neighbours_vector_costs():
    increases = [look.increase for look in auxiliary_losses(READING)]
    assert increases == pytest.approx([0.1, 0.5, 1.0])
    assert curves.logged(READING) == {
        "aux_mlm": ([5], [6.0]),
        "eval_aux_mlm": ([10, 20, 30], [6.0, 5.5, 5.0]),
        "eval_aux_mlm_shuffled_cls": ([10, 20, 30], [6.1, 6.0, 6.0]),
        INCREASE: ([10, 20, 30], increases),
    }
    assert curves.logged([]) == {}


def test_words_say_whether_and_since_when_the_vector_is_read():
    said = describe_conditioning(READING)
    assert "network conditions on [CLS] (loss 5.000 with its own [CLS], 6.000" in said
    assert said.endswith("clearly from step 20 (2,000 tokens) on")
    for unread in (READING[:2], [losses(10, math.nan, 6.0)]):
        said = describe_conditioning(unread)
        assert "hardly conditions on [CLS]" in said
        assert (ROOT / next(word for word in said.split() if word.startswith("configs/"))).is_file()


@pytest.mark.parametrize(
    ("uniformities", "said"),
    [
        ({0: -1.5, 5: -0.01, 10: -0.6}, None),
        ({}, None),
        ({0: -1.5, 5: -0.6, 10: -0.01}, "collapsed .* -1.500 at step 0.* -0.010 at step 10.: low"),
        ({0: -0.02, 10: -0.01}, "checkpoint's vectors are nearly parallel"),
        ({5: -0.02, 10: -0.01}, "the encoder has collapsed"),  # an older log begins later
    ],
)
def test_collapse_is_told_from_vectors_that_were_parallel_before(uniformities, said):
    history = [{"step": 1, "loss": 1.0}]
    history += [{"step": step, "eval_uniformity": u} for step, u in uniformities.items()]
    if said is None:
        assert describe_collapse(history) is None
    else:
        assert re.search(said, describe_collapse(history))


def test_a_best_score_that_the_log_lacks_was_before_a_resume():
    history = [{"step": 2, "eval_stsb_spearman": 61.5}, {"step": 4, "eval_stsb_spearman": 60.0}]
    assert curves.describe_unrepeated(history, {"step": 2, "value": 61.5}) is None
    said = curves.describe_unrepeated(history, {"step": 4, "value": 62.25})
    assert said.startswith("the best model scored 62.25 at step 4 before a resume")
