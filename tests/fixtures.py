"""What many tests share, made once a session: do not change it, but copy a folder to write there.

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

import copy
import functools
import json
import random
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, RobertaTokenizer

from data.source import Source
from data.tokenizer import train_tokenizer
from models.families import family_of

torch.set_num_threads(1)

_RANGE = {"initializer_range": 0.3}  # with the usual 0.02 all sentences have nearly one vector
_LAYERS = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4} | _RANGE
_LAYERS["intermediate_size"] = 64
_SIZE = _LAYERS | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_SIZES = {  # where names or kinds of sizes differ
    "electra": _SIZE | {"embedding_size": 16},
    "distilbert": _RANGE | {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 64},
    "modernbert": _LAYERS | {"mlp_dropout": 0.1, "embedding_dropout": 0.1, "local_attention": 8},
}
# Two more positions, which start behind the padding index; ids as those of roberta-base.
_ROBERTA = _SIZE | {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "max_position_embeddings": 66}
_ROBERTA |= {"bos_token_id": 0, "eos_token_id": 2}
_SPECIAL = {"special_tokens": ["<s>", "<pad>", "</s>", "<unk>"], "show_progress": False}
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
    learned.train_from_iterator(sentences, vocab_size=380, **_SPECIAL)
    model = json.loads(learned.to_str())["model"]
    merges = [*map(tuple, model["merges"])]
    vocabulary = model["vocab"] | {"<mask>": len(model["vocab"])}
    RobertaTokenizer(vocabulary, merges, model_max_length=512).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def xlm_tokenizer(sentences, tmp_path_factory):
    folder, learned = tmp_path_factory.mktemp("unigram"), Tokenizer(models.Unigram())
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(unk_token="<unk>", vocab_size=160, **_SPECIAL)
    learned.train_from_iterator([*sentences, "猫は庭で寝ています。", "Кошка спит в саду."], trainer)
    pieces = [*map(tuple, json.loads(learned.to_str())["model"]["vocab"]), ("<mask>", 0.0)]
    transformers.XLMRobertaTokenizer(vocab=pieces, model_max_length=512).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def tiny_bert(bert_tokenizer, tmp_path_factory) -> Path:
    return _saved("bert", bert_tokenizer, tmp_path_factory, max_position_embeddings=64, **_SIZE)


@pytest.fixture(scope="session")
def tiny_roberta(roberta_tokenizer, tmp_path_factory) -> Path:
    return _saved("roberta", roberta_tokenizer, tmp_path_factory, **_ROBERTA)


@pytest.fixture(scope="session")
def tiny_xlm_roberta(xlm_tokenizer, tmp_path_factory) -> Path:
    return _saved("xlm-roberta", xlm_tokenizer, tmp_path_factory, **_ROBERTA)


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
        cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        ids = {"cls_token_id": cls, "sep_token_id": sep, "bos_token_id": cls, "eos_token_id": sep}
        size = {"max_position_embeddings": 66 if behind else 64} | _SIZES.get(name, _SIZE)
        return _saved(name, tokenizer, tmp_path_factory, **ids, **size)

    return folder


def _saved(name, tokenizer, tmp_path_factory, **options) -> Path:
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    config = AutoConfig.for_model(name, **ids, **options)
    folder = tmp_path_factory.mktemp(f"tiny-{name}")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = AutoModelForMaskedLM.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
