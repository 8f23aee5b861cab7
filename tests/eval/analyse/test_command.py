"""The command on the tiny models: every file it promises, and a line for what it cannot use."""

import json

import matplotlib.image
import numpy as np
import pytest

from common.errors import BadInput
from eval.analyse.__main__ import main
from eval.analyse.geometry import HEADLINES
from eval.metrics.correlation import spearman
from eval.sts import merged, own_pairs, similarities
from models.encoder import load_encoder
from tests.encoders import encode_of
from tests.eval.toys import write_stsb

PLAIN = ["--pooling", "avg"]


def test_every_analysis_has_numbers_and_a_picture(tiny_bert, tiny_roberta, sentences, tmp_path):
    rows = [(f"{i % 26 / 5:.1f}", sentences[i % 300], sentences[i * 7 % 290]) for i in range(1379)]
    write_stsb(tmp_path, rows)
    folder, models = tmp_path / "new", [f"$one$ & only={tiny_bert}", str(tiny_roberta)]
    flags = [*PLAIN, "--max_length=30", f"--data_dir={tmp_path}", f"--output={folder}"]
    returned = main([*models, *flags])
    names = {"analyses.json", *(f"{name}.png" for name in HEADLINES)}
    assert {path.name for path in folder.iterdir()} == names
    content = json.loads((folder / "analyses.json").read_text(encoding="utf-8"))
    assert content == returned
    assert list(content["models"]) == ["$one$ & only", tiny_roberta.name]
    assert content["data"] == "STS-B test"
    for model in content["models"].values():
        assert {*model} == {"pooling", "max_length", *HEADLINES}
        assert (model["pooling"], model["max_length"]) == ("avg", 30)
        for name, entries in HEADLINES.items():
            assert all(np.isfinite(model[name][entry]) for entry in entries)
    for name in HEADLINES:
        pixels = matplotlib.image.imread(folder / f"{name}.png")
        assert min(pixels.shape[:2]) > 600 and pixels.std() > 0.02, "something is drawn"


def test_a_figure_is_that_of_the_evaluation(tiny_bert, dev_file, tmp_path, capsys):
    encoder, tokenizer = load_encoder(str(tiny_bert), "cls_before_pooler")
    encoder.save(str(tmp_path / "run"), tokenizer)
    content = main([str(tiny_bert), str(tmp_path / "run"), *PLAIN, "--dev_file", str(dev_file)])
    model, other = content["models"].values()
    assert (model["pooling"], other["pooling"]) == ("avg", "cls_before_pooler")
    pairs = merged(own_pairs(str(dev_file)).load("nowhere"))
    expected = spearman(similarities(encode_of(tiny_bert, "avg"), pairs), np.array(pairs.gold))
    assert model["cosine_by_gold"]["spearman"] == pytest.approx(expected)
    assert content["data"] == "pairs file"
    header, _, *lines = capsys.readouterr().out.splitlines()
    assert header.split("|")[2].strip() == tiny_bert.name
    gap = model["cosine_by_gold"]["gap"]
    assert [line.split("|")[2].strip() for line in lines[-2:]] == [f"{expected:.2f}", f"{gap:.3f}"]


def test_files_of_others_are_not_overwritten(tiny_bert, dev_file, tmp_path):
    (tmp_path / "analyses.json").write_text('{"my": "numbers"}')
    with pytest.raises(BadInput, match=r"analyses\.json: is an input of this command"):
        main([str(tiny_bert), *PLAIN, "--dev_file", str(dev_file), "--output", str(tmp_path)])
