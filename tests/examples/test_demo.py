"""The worked example: one document for one docstring, and a tiny run from end to end."""

import json

import pytest

from common.files import read_yaml
from eval.retrieval.beir import read_set
from examples import demo as command
from examples.demo import documents
from models.encoder import load_encoder


@pytest.fixture(scope="module")
def installed():
    return documents()


def test_the_installed_packages_have_documents_and_nearly_every_answer(installed, tmp_path):
    names, texts = zip(*installed, strict=True)
    assert len(names) > 3000 and list(names) == sorted(set(names)) and len(set(texts)) == len(texts)
    known = "numpy.linalg.inv scipy.signal.savgol_filter pandas.Series.rolling sklearn.svm.SVC"
    assert {*known.split()} <= {*names}
    assert {name.split(".")[0] for name in names} == {*command.PACKAGES}
    assert not any(name.startswith("pandas.DataFrame._") for name in names)
    text = "Calculate the absolute value element-wise. ``np.abs`` is a shorthand for this function."
    assert dict(installed)["numpy.abs"] == text, "no signature and no section"
    command.write(installed, read_yaml(command.QUESTIONS), tmp_path)
    data = read_set(tmp_path, "test")
    assert len(data.queries) >= 39 and len(data.corpus) == len(installed)
    [grades] = [data.grades[name] for name in data.queries if name == "inverse of a matrix"]
    names = {data.corpus[name].split()[0] for name in grades}
    assert names == {"numpy.linalg.inv", "scipy.linalg.inv", "scipy.sparse.linalg.inv"}


def test_a_tiny_run_shows_verdict_and_hits(tiny_bert, installed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "documents", lambda: installed)
    encoder, tokenizer = load_encoder(str(tiny_bert), "avg")
    encoder.max_length = 24
    encoder.save(tmp_path / "model", tokenizer)
    places = {name: tmp_path / name for name in ("model", "corpus", "cache_dir", "output")}
    flags = [f"--{name}={place}" for name, place in places.items()]
    verdict = command.main([*flags, "--documents=200"])
    assert verdict == json.loads((tmp_path / "output" / "adapt.json").read_text())
    assert verdict["search"] == "hybrid"
    _, shown = capsys.readouterr().out.split("| question ")
    _, _, *lines = shown.splitlines()
    assert len(lines) == len(read_yaml(command.QUESTIONS))
    for line in lines:
        for side in line.split("|")[2:-1]:
            assert len({*side.strip().split(", ")} & {*dict(installed)}) == command.HITS
