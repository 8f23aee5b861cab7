"""The labels of a command's models."""

import pytest

from common.errors import BadInput
from eval.labels import labelled


def test_a_model_has_the_shortest_unique_end_of_its_path_or_the_name_given(tmp_path, monkeypatch):
    models = ["/runs/first/best", "/runs/second/best/", "/runs/third", "org/model"]
    assert labelled(models) == dict(zip(("first/best", "second/best", "third", "model"), models, strict=True))
    assert labelled(["before=/a/x", "after=/b/x", "/c/x"]) == {"before": "/a/x", "after": "/b/x", "x": "/c/x"}
    assert labelled(["x=/a/y", "/b/x"]) == {"x": "/a/y", "b/x": "/b/x"}
    assert list(labelled(["/runs/lr=3e-5/best"])) == ["best"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3e-5").mkdir()
    assert labelled(["lr=3e-5"]) == {"lr=3e-5": "lr=3e-5"}


@pytest.mark.parametrize("models", [["a=/x", "a=/y"], ["/x/a", "/x/a/"], ["/x/a", "/y/a", "x-a=/z"]])
def test_two_models_of_one_name_or_one_file_are_refused(models):
    with pytest.raises(BadInput, match=r"two models are named '.*a'; rename one with NAME="):
        labelled(models)
