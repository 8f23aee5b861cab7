"""The labels of a command's models."""

import pytest

from common.errors import BadInput
from eval.labels import labelled


def test_a_model_has_the_last_part_of_its_path_or_the_name_given(tmp_path, monkeypatch):
    assert labelled(["/runs/second/best/", "org/model"]) == {
        "best": "/runs/second/best/",
        "model": "org/model",
    }
    assert labelled(["before=/a/x", "/c/x"]) == {"before": "/a/x", "x": "/c/x"}
    assert list(labelled(["/runs/lr=3e-5/best"])) == ["best"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3e-5").mkdir()
    assert labelled(["lr=3e-5"]) == {"lr=3e-5": "lr=3e-5"}


@pytest.mark.parametrize("models", [["a=/x", "a=/y"], ["/x/a", "/y/a"]])
def test_two_models_of_one_name_are_refused(models):
    with pytest.raises(BadInput, match="two models are named 'a'; rename one with NAME="):
        labelled(models)
