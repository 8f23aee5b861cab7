"""What many tests share: a small text, two tokenizers, two tiny models and graded pairs; built
offline in seconds.

All of it is made once a session and belongs to everybody: do not change it. A test that trains or
writes loads its own model from the folder (`from_pretrained`) or copies the folder
(`shutil.copytree(tiny_bert, tmp_path / "model")`).

    sentences          list of 300 distinct sentences, 4 to 13 words
    text_file          the same, one a line
    dev_file           30 graded pairs: tab-separated, header sentence1 sentence2 score (0 to 5)
    bert_tokenizer     WordPiece learned from the text, lower-casing, words of one to several pieces
    roberta_tokenizer  byte-level BPE learned from the text; special ids and framing of roberta-base
    xlm_tokenizer      unigram, as sentencepiece learns it; special ids and framing of XLM-R
    tiny_bert          folder: BertForMaskedLM (4 layers of 32, 4 heads, 64 positions, dropout 0.1)
                       with bert_tokenizer
    tiny_roberta       folder: RobertaForMaskedLM (the same, 66 positions), roberta_tokenizer
    tiny_xlm_roberta   folder: XLMRobertaForMaskedLM (the same, 66 positions), xlm_tokenizer
    tiny               function: the name of any family of models.families -> folder of the same
"""

from __future__ import annotations

import copy
import functools
import json
import random
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)

from data.source import Source
from data.tokenizer import train_tokenizer
from models.families import family_of

torch.set_num_threads(1)
# The same examples each time.
settings.register_profile("repository", derandomize=True, database=None, deadline=None)
settings.load_profile("repository")

_RANGE = {"initializer_range": 0.3}  # with the usual 0.02 all sentences have nearly one vector
_LAYERS = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4} | _RANGE
_LAYERS["intermediate_size"] = 64
_SIZE = _LAYERS | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_SIZES = {  # where names or kinds of sizes differ
    "electra": _SIZE | {"embedding_size": 16},
    "distilbert": _RANGE | {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 64},
    "modernbert": _LAYERS | {"mlp_dropout": 0.1, "embedding_dropout": 0.1, "local_attention": 8},
}
_OPENINGS = "Today; Yesterday; In the garden; Behind the old station; Without any warning"
_QUALITIES = "small brown unbelievable careful wooden quiet remarkable yellow weatherproof tired"
_NOUNS = "dog teacher river musician lighthouse child bicycle newspaper gardener understanding"
_WORDS = {
    "opening": _OPENINGS.split("; "),
    "article": "a the every this another".split(),
    "quality": _QUALITIES.split(),
    "noun": _NOUNS.split(),
    "verb": "watches follows paints remembers overtakes carries misunderstands photographs".split(),
    "adverb": "slowly twice again enthusiastically today".split(),
}


def _sentence(rng: random.Random) -> str:
    def word(role):
        return rng.choice(_WORDS[role])

    parts = [word("opening") + ","] if rng.random() < 0.4 else []
    parts += [word("article")] + [word("quality")] * (rng.random() < 0.6) + [word("noun")]
    parts += [word("verb"), word("article")]
    parts += [word("quality")] * (rng.random() < 0.6) + [word("noun")]
    parts += [word("adverb")] * (rng.random() < 0.5)
    sentence = " ".join(parts)
    return sentence[0].upper() + sentence[1:] + rng.choice([".", "!", ""])


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    rng, made = random.Random(7), {}
    while len(made) < 300:
        made[_sentence(rng)] = None
    return list(made)


@pytest.fixture(scope="session")
def text_file(sentences, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def dev_file(sentences, tmp_path_factory) -> Path:
    """Each pair is a sentence and a copy with words replaced; the score is the share kept."""
    rng = random.Random(11)
    lines = ["sentence1\tsentence2\tscore"]
    for number, sentence in enumerate(sentences[:30]):
        words = sentence.split()
        replaced = round(len(words) * (number % 6) / 5)
        other = words.copy()
        new = [word for word in _WORDS["noun"] + _WORDS["verb"] if word not in words]
        for index in rng.sample(range(len(words)), replaced):
            other[index] = rng.choice(new)
        lines.append(f"{sentence}\t{' '.join(other)}\t{5 * (1 - replaced / len(words)):.3f}")
    path = tmp_path_factory.mktemp("dev") / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def bert_tokenizer(text_file, tmp_path_factory):
    return train_tokenizer(Source((text_file,)), 160, tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def roberta_tokenizer(sentences, tmp_path_factory):
    """As in roberta-base: <s> 0, <pad> 1, </s> 2, <unk> 3, <mask> last; no space in front."""
    folder = tmp_path_factory.mktemp("byte-level")
    learned = ByteLevelBPETokenizer(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    rules = {"vocab_size": 380, "special_tokens": special, "show_progress": False}
    learned.train_from_iterator(sentences, **rules)
    learned.save_model(str(folder))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    vocabulary = learned.get_vocab()
    vocabulary["<mask>"] = len(vocabulary)
    RobertaTokenizer(vocabulary, merges, model_max_length=512).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def xlm_tokenizer(sentences, tmp_path_factory):
    folder, learned = tmp_path_factory.mktemp("unigram"), Tokenizer(models.Unigram())
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    rules = {"vocab_size": 160, "special_tokens": special, "show_progress": False}
    trainer = trainers.UnigramTrainer(unk_token="<unk>", **rules)
    learned.train_from_iterator([*sentences, "猫は庭で寝ています。", "Кошка спит в саду."], trainer)
    pieces = [*map(tuple, json.loads(learned.to_str())["model"]["vocab"]), ("<mask>", 0.0)]
    XLMRobertaTokenizer(vocab=pieces, model_max_length=512).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def tiny_bert(bert_tokenizer, tmp_path_factory) -> Path:
    ids = {"vocab_size": len(bert_tokenizer), "pad_token_id": bert_tokenizer.pad_token_id}
    config = AutoConfig.for_model("bert", **ids, max_position_embeddings=64, **_SIZE)
    return _saved(config, bert_tokenizer, tmp_path_factory)


@pytest.fixture(scope="session")
def tiny_roberta(roberta_tokenizer, tmp_path_factory) -> Path:
    return _like_roberta("roberta", roberta_tokenizer, tmp_path_factory)


@pytest.fixture(scope="session")
def tiny_xlm_roberta(xlm_tokenizer, tmp_path_factory) -> Path:
    return _like_roberta("xlm-roberta", xlm_tokenizer, tmp_path_factory)


def _like_roberta(name, tokenizer, tmp_path_factory):
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    ids |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    kind = {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
    kind["max_position_embeddings"] = 66  # two more: positions start behind the padding index
    config = AutoConfig.for_model(name, **ids, **kind, **_SIZE)
    return _saved(config, tokenizer, tmp_path_factory)


@pytest.fixture(scope="session")
def tiny(tiny_bert, tiny_roberta, bert_tokenizer, roberta_tokenizer, tmp_path_factory):
    """The folder of any family's tiny masked language model, by name; made once."""

    @functools.cache
    def folder(name: str) -> Path:
        if name in ("bert", "roberta"):
            return {"bert": tiny_bert, "roberta": tiny_roberta}[name]
        behind = family_of(AutoConfig.for_model(name)).offset_positions
        tokenizer = copy.deepcopy(roberta_tokenizer if behind else bert_tokenizer)
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
        pad, cls, sep = tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id
        ids = {"pad_token_id": pad, "cls_token_id": cls, "sep_token_id": sep}
        ids |= {"bos_token_id": cls, "eos_token_id": sep}
        size = {"vocab_size": len(tokenizer), "max_position_embeddings": 66 if behind else 64} | ids
        config = AutoConfig.for_model(name, **size, **_SIZES.get(name, _SIZE))
        return _saved(config, tokenizer, tmp_path_factory)

    return folder


def _saved(config, tokenizer, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(f"tiny-{config.model_type}")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = AutoModelForMaskedLM.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
