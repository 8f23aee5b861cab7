"""The cache of vectors, and the labels of models."""

import numpy as np
import pytest

from common.errors import BadInput
from eval.analyse.analysis import CachedEncoder
from eval.labels import labelled
from tests.eval.letters import Letters


def test_a_sentence_is_encoded_once_for_all_analyses():
    letters = Letters()
    cached = CachedEncoder(letters)
    for sentences in (["a", "i", "a"], ["eee", "i"], ["a"]):
        assert np.array_equal(cached(sentences), Letters()(sentences))
    assert letters.asked == ["a", "i", "eee"]


def test_a_model_is_called_by_the_shortest_end_of_its_path_that_is_its_own(tmp_path):
    models = ["/runs/first/best", "/runs/second/best/", "/runs/third", "org/model"]
    assert labelled(models) == dict(zip(("first/best", "second/best", "third", "model"), models, strict=True))


def test_names_are_given_with_an_equals_sign(tmp_path, monkeypatch):
    assert labelled(["before=/a/x", "after=/b/x", "/c/x"]) == {"before": "/a/x", "after": "/b/x", "x": "/c/x"}
    assert labelled(["x=/a/y", "/b/x"]) == {"x": "/a/y", "b/x": "/b/x"}
    assert labelled(["one=/a", "two=/a"]) == {"one": "/a", "two": "/a"}, "with other flags of its own one day"
    assert list(labelled(["/runs/lr=3e-5/best"])) == ["best"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3e-5").mkdir()
    assert labelled(["lr=3e-5"]) == {"lr=3e-5": "lr=3e-5"}


@pytest.mark.parametrize("models", [["a=/x", "a=/y"], ["/x/a", "/x/a"], ["/x/a", "/x/a/"]])
def test_two_models_of_one_name_are_refused(models):
    with pytest.raises(BadInput, match=r"two models are named '.*a/?'; rename one with NAME="):
        labelled(models)


@pytest.mark.parametrize("model", ["=/a", "a="])
def test_half_a_name_is_refused(model):
    with pytest.raises(BadInput, match="NAME=PATH needs a name and a path"):
        labelled([model])
