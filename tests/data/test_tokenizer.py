"""Special tokens, starts of words, and learned vocabularies."""

import json
from itertools import chain
from unittest.mock import Mock

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import data.tokenizer
from data.masking import choose_words
from data.source import Source
from data.tokenizer import SPECIAL, train_tokenizer, word_starts
from models.objectives.cropping import delete
from tests.refusals import refused


def with_vocabulary(tokenizer, tokens):
    """The same kind of tokenizer with these tokens and no merges."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    rules["model"]["vocab"] = {token: i for i, token in enumerate(tokens)}
    rules["model"].pop("merges", None)
    if rules["model"]["type"] == "BPE":
        rules["model"]["merges"] = []
    rules["added_tokens"], rules["post_processor"] = [], None
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(rules)))


def test_the_tokens_that_begin_words_of_all_kinds(bert_tokenizer, roberta_tokenizer, xlm_tokenizer):
    tokens = ["[UNK]", "river", "##bank", "##s", ",", "#", "unhappy", "##", "a##b"]
    starts = word_starts(with_vocabulary(bert_tokenizer, tokens))
    assert starts.tolist() == [True, True, False, False, True, True, True, False, True]
    tokens = ["<unk>", "Ġriver", "bank", "Ġ", "s", ",", "Ġ,", "ĠĠx", "xĠ", "ĊĠ"]
    starts = word_starts(with_vocabulary(roberta_tokenizer, tokens))
    assert starts.tolist() == [False, True, False, True, False, False, True, True, False, False]

    pieces = xlm_tokenizer.convert_ids_to_tokens(range(len(xlm_tokenizer)))
    starts, letters = word_starts(xlm_tokenizer), "猫は庭で寝ています。"
    assert starts.tolist() == [piece.startswith("▁") or piece in letters for piece in pieces]
    ids = xlm_tokenizer("the dog 猫は庭", add_special_tokens=False)["input_ids"]
    assert starts[ids].sum() == 6 < len(ids)


@pytest.mark.parametrize("text", ["猫は庭で寝ています。", "แมวนอนในสวน"])
def test_a_token_of_a_script_without_spaces_is_a_word(xlm_tokenizer, roberta_tokenizer, text):
    """Else a whole sentence would be a word, which is neither masked nor deleted. Of single bytes,
    a letter is one."""
    ids = np.array(roberta_tokenizer(text, add_special_tokens=False)["input_ids"])
    starts = word_starts(roberta_tokenizer)[ids]
    assert starts.sum() == len(text) and len(ids) > len(text)
    kept = [len(delete(ids, starts, np.random.default_rng(seed), 0.6)) for seed in range(9)]
    assert max(kept) < len(ids)
    text_of, uniform = np.ones((1, len(ids)), dtype=bool), np.linspace(0, 1, len(ids))[None]
    assert choose_words(text_of, ~text_of, starts[None], 0.15, uniform).any()
    if text[0] == "猫":
        ids = xlm_tokenizer(text, add_special_tokens=False)["input_ids"]
        assert word_starts(xlm_tokenizer)[ids].all()


def test_another_kind_of_tokenizer_is_refused():
    plain = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0})))
    refused(word_starts, plain, match="sentencepiece, not for 'None'")


def test_a_vocabulary_is_learned_once(text_file, tmp_path, monkeypatch):
    learn = Mock(wraps=data.tokenizer._learn)
    monkeypatch.setattr(data.tokenizer, "_learn", learn)
    first = train_tokenizer(Source((text_file,)), 200, tmp_path)
    copied = tmp_path / "other name.txt"
    copied.write_bytes(text_file.read_bytes())
    assert train_tokenizer(Source((copied,)), 200, tmp_path).get_vocab() == first.get_vocab()
    assert learn.call_count == 1
    train_tokenizer(Source((text_file,)), 150, tmp_path)
    copied.write_bytes(text_file.read_bytes() + b"another sentence\n")
    train_tokenizer(Source((copied,)), 200, tmp_path)
    assert [call.args[1] for call in learn.call_args_list] == [200, 150, 200]


def test_it_is_bert_s_kind_of_tokenizer(text_file, sentences, tmp_path):
    tokenizer = train_tokenizer(Source((text_file,)), 160, tmp_path)
    assert tokenizer.convert_ids_to_tokens(range(5)) == list(SPECIAL)
    same = tokenizer.tokenize("the dog .")
    assert tokenizer.tokenize("THÉ Dog.") == same, "no case, no accents, punctuation apart"
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    dog, river = (tokenizer(text)["input_ids"][1:-1] for text in ("the dog", "the river"))
    assert tokenizer("the dog", "the river")["input_ids"] == [cls, *dog, sep, *river, sep]
    known = {*chain(*tokenizer(sentences)["input_ids"])}
    assert len(tokenizer) <= 160 and tokenizer.unk_token_id not in known
