"""The labels of a command's models."""

from common.flags import labelled
from tests.refusals import refused


def test_a_model_has_the_last_part_of_its_path_or_the_name_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3e-5").mkdir()
    models = ["/runs/second/best/", "org/model", "before=/a/x", "/c/lr=1/x", "lr=3e-5"]
    assert [*labelled(models)] == ["best", "model", "before", "x", "lr=3e-5"]
    assert labelled(models)["before"] == "/a/x" and labelled(models)["lr=3e-5"] == "lr=3e-5"
    for two in (["a=/x", "a=/y"], ["/x/a", "/y/a"]):
        assert "two models are named 'a'; rename one with NAME=" in refused(labelled, two)
