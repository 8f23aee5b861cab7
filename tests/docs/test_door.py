"""The examples in the docstrings of the public module run as they stand."""

import doctest
import shutil
from pathlib import Path

import pytest
from transformers import ProgressCallback

import infocse
from common.errors import BadInput
from tests.sources import ROOT
from training import stages
from training.methods import STAGE_ONE, SUP


@pytest.fixture
def names(tiny_bert, text_file, dev_file, tmp_path, monkeypatch):
    """What the examples call MODEL, TEXT.txt, PAIRS.tsv and sentences, in a new folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ProgressCallback, "on_log", lambda *_, **__: None)  # it prints
    shutil.copytree(tiny_bert, "MODEL")
    shutil.copy(text_file, "TEXT.txt")
    shutil.copy(dev_file, "PAIRS.tsv")
    return {"sentences": text_file.read_text(encoding="utf-8").splitlines()}


@pytest.mark.parametrize("name", infocse.__all__)
def test_an_example_gives_what_it_says(name, names):
    (found,) = doctest.DocTestFinder(recurse=False).find(
        getattr(infocse, name), name, globs=vars(infocse) | names
    )
    assert found.examples
    result = doctest.DocTestRunner(verbose=False).run(found)
    assert result.attempted == len(found.examples) and not result.failed


def test_the_method_of_a_configuration_decides_how_rows_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "train_sentences", lambda settings, callbacks: settings)
    rows, small = [("a dog", "a cat", "neutral")], ROOT / "configs" / "mini.yaml"
    config = ROOT / "configs" / "consert-sup-bert-base.yaml"
    settings = infocse.train(rows, config=[config, small], cache_dir=tmp_path)
    assert settings.script == SUP
    (file,) = settings.data_args.train_file
    assert Path(file).read_text().splitlines()[0] == "premise\thypothesis\tlabel"
    with pytest.raises(BadInput, match=STAGE_ONE):
        infocse.train(rows, config=ROOT / "configs" / "aux-bert-base.yaml", cache_dir=tmp_path)
