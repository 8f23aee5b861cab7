"""The examples in the docstrings of the public module run as they stand."""

import doctest
import shutil

import pytest
from transformers import ProgressCallback

import infocse
from training import stages


@pytest.fixture
def names(tiny_bert, text_file, dev_file, tmp_path, monkeypatch):
    """What the examples call MODEL, TEXT.txt, PAIRS.tsv and sentences, in a new folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stages, "draw", lambda *_: None)
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
