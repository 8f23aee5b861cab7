"""Small folders that state their tokenizer in every published way: ours has the right ids, and
what we save has them for sentence-transformers."""

import json
from dataclasses import dataclass, field
from functools import cache

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, processors, trainers
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Metaspace, WhitespaceSplit
from transformers import AutoTokenizer

from models.loading import load_tokenizer

TEXTS = ["the dog runs near A RIVER", "猫は庭で寝ています。", "Кошка спит в саду."]
TEXTS.append("don't, café  naïve ½")
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
NAMED = {
    BERT: dict(zip(("pad", "unk", "cls", "sep", "mask"), BERT, strict=True)),
    ROBERTA: dict(zip(("cls", "pad", "sep", "unk", "mask"), ROBERTA, strict=True)),
}
NAMED[ROBERTA] |= {"bos": "<s>", "eos": "</s>"}


def names(special):
    return {f"{name}_token": token for name, token in NAMED[special].items()}


def copy_of(tokenizer):
    """Another one with the same ids: training one again may number the pieces otherwise."""
    return Tokenizer.from_str(tokenizer.to_str())


def framed(tokenizer, first, last):
    tokenizer = copy_of(tokenizer)
    parts = [part for part in (first, "$A", last) if part]
    ids = [(token, tokenizer.token_to_id(token)) for token in (first, last) if token]
    template = " ".join(parts)
    tokenizer.post_processor = processors.TemplateProcessing(template, f"{template} $B", ids)
    return tokenizer


def trained(model, trainer, **parts):
    """One with these parts beside its model, learned from the texts."""
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def rules(size, special):
    return {"vocab_size": size, "special_tokens": [*special], "show_progress": False}


@cache
def wordpiece(lowercase=True, splitter=None, last="[SEP]", **settings):
    parts = {"normalizer": normalizers.BertNormalizer(lowercase=lowercase, **settings)}
    parts["pre_tokenizer"] = splitter or BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(**rules(120, BERT))
    return framed(trained(models.WordPiece(unk_token="[UNK]"), trainer, **parts), "[CLS]", last)


def unigram(special=ROBERTA):
    """As sentencepiece's are converted; the mask takes the space before it."""
    first, last, unknown = (NAMED[special][name] for name in ("cls", "sep", "unk"))
    trainer = trainers.UnigramTrainer(unk_token=unknown, **rules(100, special[:4]))
    parts = {"normalizer": normalizers.NFKC(), "pre_tokenizer": Metaspace()}
    tokenizer = trained(models.Unigram(), trainer, **parts)
    tokenizer.add_special_tokens([AddedToken(special[4], lstrip=True, special=True)])
    return framed(tokenizer, first, last)


@cache
def bytes_of(special=ROBERTA, first="<s>", last="</s>"):
    trainer = trainers.BpeTrainer(initial_alphabet=ByteLevel.alphabet(), **rules(300, special))
    tokenizer = trained(models.BPE(), trainer, pre_tokenizer=ByteLevel(add_prefix_space=False))
    return framed(tokenizer, first, last)


@cache
def llama():
    spaces = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(**rules(150, ("<unk>", "<s>", "</s>")))
    model = models.BPE(unk_token="<unk>", fuse_unk=True)
    return framed(trained(model, trainer, normalizer=spaces), "<s>", None)


def with_tokens(*plain):
    tokenizer = copy_of(wordpiece())
    tokenizer.add_special_tokens(["[Q]"])
    tokenizer.add_tokens([AddedToken(word, normalized=True) for word in plain])
    return tokenizer


def padding():
    tokenizer = copy_of(wordpiece())
    tokenizer.enable_padding(length=99)
    tokenizer.enable_truncation(3)
    return tokenizer


def files_of(tokenizer):
    """The files of transformers 2 for a tokenizer, which had no tokenizer.json."""
    model = json.loads(tokenizer.to_str())["model"]
    if model["type"] == "WordPiece":
        return {"vocab.txt": "\n".join(sorted(model["vocab"], key=model["vocab"].get))}
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": "\n".join(merges)}


def cased():
    tokenizer = copy_of(wordpiece())
    tokenizer.normalizer.lowercase = False
    return tokenizer


def with_first_space():
    tokenizer = copy_of(bytes_of())
    tokenizer.pre_tokenizer.add_prefix_space = True
    return tokenizer


def added(content):
    off = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, "special": True} | off


@dataclass
class Folder:
    kind: str  # its model type
    file: Tokenizer | None  # its tokenizer.json; None: it has the vocabulary of `right` as text
    settings: dict = field(default_factory=dict)  # its tokenizer_config.json
    right: Tokenizer | None = None  # the tokenizer whose ids are right, if not `file`


def of_class(name, **also):
    return {"tokenizer_class": name, **also}


LLAMA = of_class("LlamaTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
QWEN = of_class("Qwen2Tokenizer", pad_token="<end>", eos_token="<end>")
FOLDERS = {
    "sentencepiece in a BERT": Folder("bert", unigram(), names(ROBERTA)),
    "no token named": Folder("bert", unigram()),
    "XLM-R that names RoBERTa": Folder(
        "xlm-roberta", unigram(), of_class("RobertaTokenizer", **names(ROBERTA))
    ),
    "XLM-R": Folder("xlm-roberta", unigram(), of_class("XLMRobertaTokenizer")),
    "DeBERTa": Folder("deberta-v2", unigram(BERT), of_class("DebertaV2Tokenizer")),
    "BERT": Folder("bert", wordpiece(), of_class("BertTokenizer")),
    "BERT, cased": Folder("bert", wordpiece(False), {"do_lower_case": False}),
    "a class above its file": Folder("bert", wordpiece(), {"do_lower_case": False}, cased()),
    "accents kept": Folder("bert", wordpiece(strip_accents=False), {"strip_accents": False}),
    "spaces only": Folder("bert", wordpiece(splitter=WhitespaceSplit())),
    "no last token": Folder("bert", wordpiece(last=None)),
    "padding in the file": Folder("bert", padding()),
    "a class of nobody": Folder("bert", wordpiece(), of_class("NoSuchTokenizer")),
    "tokens added": Folder("bert", with_tokens("riverbank")),
    "a token added beside": Folder(
        "bert", wordpiece(), {"added_tokens_decoder": {"99": added("[Q]")}}, with_tokens()
    ),
    "vocab.txt": Folder("bert", None, right=wordpiece()),
    "vocab.txt, cased": Folder("bert", None, {"do_lower_case": False}, wordpiece(False)),
    "merges.txt": Folder("roberta", None, right=bytes_of()),
    "RoBERTa": Folder("roberta", bytes_of(), of_class("RobertaTokenizer")),
    "a first space": Folder("roberta", bytes_of(), {"add_prefix_space": True}, with_first_space()),
    "a last token": Folder(
        "mistral", llama(), LLAMA | {"add_eos_token": True}, framed(llama(), "<s>", "</s>")
    ),
    "no first token": Folder(
        "llama", llama(), LLAMA | {"add_bos_token": False}, framed(llama(), None, None)
    ),
    "Qwen": Folder("qwen2", bytes_of(special=("<end>",), first=None, last="<end>"), QWEN),
}


def write(folder, case):
    (folder / "config.json").write_text(json.dumps({"model_type": case.kind}))
    (folder / "tokenizer_config.json").write_text(json.dumps(case.settings))
    files = {"tokenizer.json": case.file.to_str()} if case.file else files_of(case.right)
    for name, content in files.items():
        (folder / name).write_text(content)


@pytest.mark.parametrize("case", FOLDERS)
def test_the_ids_of_a_folder_are_those_that_it_states(tmp_path, case):
    write(tmp_path, FOLDERS[case])
    right = copy_of(FOLDERS[case].right or FOLDERS[case].file)
    right.no_padding()
    right.no_truncation()
    special = [token for token in right.get_vocab() if token[0] in "[<"]
    texts = [*TEXTS, *(f"a {token} b" for token in special), "The riverbank  of [Q]", ""]
    expected = [right.encode(text).ids for text in texts]
    ours = load_tokenizer(str(tmp_path))
    assert ours(texts)["input_ids"] == expected
    assert ours.pad(ours(texts[:2])).keys() >= {"input_ids", "attention_mask"}
    ours.save_pretrained(tmp_path / "again")
    (tmp_path / "again" / "config.json").write_text((tmp_path / "config.json").read_text())
    theirs = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert theirs(texts)["input_ids"] == expected
