"""Word vectors: learnt as a slow loop does, read from a file, averaged, refused in a line."""

import gzip

import numpy as np
import pytest

from baselines.words import averaged, learn_words, read_words
from tests.refusals import refused


def slow_ppmi(sentences, words, window=5):
    """Positive pointwise mutual information with a smoothed context, pair by pair."""
    pairs = {}
    for sentence in sentences:
        for i, left in enumerate(sentence):
            for j, right in enumerate(sentence):
                if i != j and abs(i - j) <= window:
                    pairs[left, right] = pairs.get((left, right), 0) + 1
    total = {word: sum(n for (left, _), n in pairs.items() if left == word) for word in words}
    smooth = sum(n**0.75 for n in total.values())
    table = np.zeros((len(words), len(words)))
    for (left, right), n in pairs.items():
        chance = total[left] * total[right] ** 0.75 / smooth
        table[words.index(left), words.index(right)] = max(0, np.log(n / chance))
    return table


def test_learnt_vectors_are_those_of_a_slow_loop():
    rng = np.random.default_rng(1)
    names = [f"w{number}" for number in range(12)]
    frequency = np.arange(12, 0, -1) / 78
    sentences = [[names[i] for i in rng.choice(12, 9, p=frequency)] for _ in range(60)]
    texts = [f"{' '.join(sentence)} Rare{number}." for number, sentence in enumerate(sentences)]
    texts[0] = f"'{texts[0].capitalize()}"
    learnt = learn_words(texts)
    _, *words = learnt.tokenizer.get_vocab()
    assert {*words} == {*names}, "in lower case, without punctuation, and none that is rare"
    table = learnt.emb_layer.weight.numpy()
    assert table.shape == (13, 11) and not table[0].any()
    left, scale, _ = np.linalg.svd(slow_ppmi(sentences, words))
    expected = (left[:, :11] * scale[:11]) @ left[:, :11].T
    assert np.allclose(table[1:] @ table[1:].T, expected, atol=1e-4)
    assert "too few" in refused(learn_words, ["one two", "three four"])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_a_sentence_has_the_mean_of_its_known_words(pack, header, tmp_path):
    path = tmp_path / ("vectors.gz" if pack is gzip.compress else "vectors")
    path.write_bytes(pack(f"{header}the 9 9\ndog 1 2\nParis 3 0\n".encode()))
    encode = averaged(read_words(path))
    vectors = encode(["The dog!", "dog, Paris zebra", "PARIS", "zebra", "", "dog"])
    expected = [[1, 2], [2, 1], [0, 0], [0, 0], [0, 0], [1, 2]]
    assert vectors.dtype == np.float32 and np.allclose(vectors, expected)
    assert not encode(["zebra", ""]).any()


@pytest.mark.parametrize("content", ["", "dog one two\n", b"dog \xff 1\n"])
def test_another_kind_of_file_is_refused(content, tmp_path):
    path = tmp_path / "vectors.txt"
    assert "no such file" in refused(read_words, path)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert refused(read_words, path).startswith(f"{path}: not lines of a word")
