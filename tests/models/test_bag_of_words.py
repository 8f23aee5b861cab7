"""The words of a text, which stage 1 predicts from [CLS]."""

import numpy as np
import pytest

from data.collator import Collator
from data.source import Source
from data.tokenised import load_tokenised
from data.views import IGNORED, View
from models.loading import load_tokenizer


@pytest.fixture
def batch(folder, text_file, tmp_path):
    tokenizer = load_tokenizer(folder)
    text = load_tokenised(Source((text_file,)), tokenizer, tmp_path)
    shorter = View(lambda ids, starts, generator: np.repeat(ids[::2], 2))
    return Collator(text, tokenizer, [View(), shorter], 64, 5, words=True)(
        [(0, index, 0) for index in range(6)]
    )


def test_the_words_are_those_of_the_text_before_its_edit(folder, batch, sentences):
    tokenizer = load_tokenizer(folder)
    special = set(tokenizer.all_special_ids)
    for view in batch["words"]:
        for row, words in enumerate(view):
            tokens = words[words != IGNORED].tolist()
            assert len(tokens) == len(set(tokens))
            assert set(tokens) == set(tokenizer(sentences[row])["input_ids"]) - special
    assert (batch["words"][0] != IGNORED).sum() < (batch["attention_mask"][0] == 1).sum(), (
        "some words are repeated"
    )
