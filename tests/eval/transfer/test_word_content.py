"""Word content: the sets it draws, and the accuracies of vectors that know all words or none."""

from pathlib import Path

import numpy as np
import pytest

from eval.tasks import Options, tasks_named
from eval.transfer import word_content
from tests.refusals import refused


@pytest.fixture
def text(tmp_path, monkeypatch) -> Path:
    """Three frequent words, then the two classes, then a rare word."""
    monkeypatch.setattr(word_content, "FIRST_RANK", 3)
    monkeypatch.setattr(word_content, "WORDS", 2)
    monkeypatch.setattr(word_content, "SPLITS", {"train": 30, "dev": 10, "test": 20})
    lines = [f"The of and cat, {number}" for number in range(70)]
    lines += [f"The of and Dog {number}" for number in range(65)]
    lines += ["the of and", "the of and cat dog", "the of and bird", "The of and cat, 5"]
    lines += ["the of and dog" + " the" * word_content.LONGEST]
    path = tmp_path / word_content.TEXT
    path.parent.mkdir()
    path.write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_every_sentence_holds_one_word_and_is_in_one_split(text):
    splits = word_content.read(text)
    seen = [sentence for split in splits.values() for (sentence,) in split.texts]
    assert len(set(seen)) == len(seen) == 120
    for split, size in word_content.SPLITS.items():
        words = ["cat" if "cat" in sentence else "Dog" for (sentence,) in splits[split].texts]
        assert words == ["cat"] * size + ["Dog"] * size
        assert splits[split].labels == [0] * size + [1] * size
        assert not any("cat dog" in sentence for (sentence,) in splits[split].texts)


def test_vectors_that_know_the_word_are_right_and_others_guess(text):
    (task,) = word_content.tasks()
    know = task.score(lambda texts: np.array([64 * [1 - 2 * s.count("cat")] for s in texts]), text)
    guess = task.score(lambda texts: np.ones((len(texts), 64)), text)
    assert (know.rows[0]["value"], guess.rows[0]["value"]) == (100, 50)
    metrics = {t.name: t.metric for t in tasks_named(["transfer", "words"], Options())}
    assert [n for n, m in metrics.items() if m != "accuracy"] == ["word content"], "no average"
    assert "needs --split test" in refused(tasks_named, ["words"], Options("dev"))


def test_too_little_text_is_refused(text):
    path = text / word_content.TEXT
    path.write_text("\n".join(path.read_text().splitlines()[:100]), encoding="utf-8")
    said = "words with fewer than 60 sentences; put sentences there"
    assert said in refused(word_content.read, text)
    path.unlink()
    assert "no such file or directory; put sentences there" in refused(word_content.read, text)
