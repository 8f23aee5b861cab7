"""The example runs as it stands, with fewer steps and sentences of a smaller model."""

import json

import matplotlib
import matplotlib.pyplot as plt

from examples import train_and_search as example
from examples.grammar import generate


def test_the_example_trains_searches_and_draws(tiny_bert, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(example, "generate", lambda seed, sentences, pairs: generate(seed, 600, 60))
    monkeypatch.setattr("training.result.draw_log", lambda *_: None)
    matplotlib.use("Agg")
    picture = example.example(str(tiny_bert), steps=6)
    height, width, _ = plt.imread(picture).shape
    plt.close("all")
    assert width > 2 * height > 600
    hits = [
        float(line.split()[0])
        for line in capsys.readouterr().out.splitlines()
        if line[:2] in ("0.", "1.")
    ]
    assert len(hits) == 3 and hits == sorted(hits, reverse=True)
    assert json.loads((tmp_path / "runs/example/run.json").read_text())["steps"] == 6
