"""Averaged word vectors: sentence-transformers' own as the oracle."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

from baselines.words import STOP_WORDS, read_word_vectors, save_words
from eval.encode import Encode
from models.encoder import load_encoder
from models.word_vectors import SPECIAL

WORDS = "The the dog . u.s. Paris paris cat don't , co-op naïve [UNK] 7".split()
TEXTS = [
    "The dog.",
    "the DOG , (u.s.)",
    "U.S. Paris",
    "a zebra and the cat!",
    "Don't \u00a0 co-op; naïve",
    "zebra ...",
]
TEXTS += ["", "the the dog dog cat", "[UNK] [no word] [unknown word] 7", "!!! ,"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "vectors.txt"
    numbers = np.random.default_rng(0).normal(size=(len(WORDS), 4)).round(4)
    lines = [" ".join([word, *map(str, row)]) for word, row in zip(WORDS, numbers, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def loaded(file, folder, stop_words):
    save_words(
        str(folder), read_word_vectors(file, zero_rows=len(SPECIAL)), STOP_WORDS[stop_words]()
    )
    encoder, tokenizer = load_encoder(str(folder))
    return encoder, tokenizer, Encode(encoder, tokenizer)


@pytest.mark.parametrize("stop_words", list(STOP_WORDS))
def test_vectors_are_those_of_sentence_transformers(stop_words, file, tmp_path):
    theirs = WhitespaceTokenizer(stop_words=STOP_WORDS[stop_words]())
    words = WordEmbeddings.from_text_file(str(file), tokenizer=theirs)
    oracle = SentenceTransformer(modules=[words, Pooling(4)], device="cpu")
    encode = loaded(file, tmp_path / "model", stop_words)[2]
    texts = [
        text for text in TEXTS if theirs.tokenize(text)
    ]  # theirs fails on a batch of empty sentences
    assert len(texts) >= 7
    assert np.abs(encode(texts) - oracle.encode(texts)).max() < 1e-6
    empty = [text for text in TEXTS if text not in texts]
    assert empty and not encode(empty).any()


def test_a_folder_is_saved_again_and_not_taken_for_sentence_transformers(file, tmp_path):
    encoder, tokenizer, encode = loaded(file, tmp_path / "model", "english")
    assert tokenizer.tokenize("dog. zebra ...") == ["dog", "[unknown word]"]
    assert not (tmp_path / "model" / "modules.json").exists()
    encoder.save(str(tmp_path / "again"), tokenizer)
    again, tokenizer = load_encoder(str(tmp_path / "again"))
    assert np.array_equal(Encode(again, tokenizer)(TEXTS), encode(TEXTS))


def test_the_identity_covers_words_and_rules(file, tmp_path):
    identity = loaded(file, tmp_path / "a", "english")[2].identity
    assert loaded(file, tmp_path / "b", "english")[2].identity == identity
    assert loaded(file, tmp_path / "d", "none")[2].identity != identity
