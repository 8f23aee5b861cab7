"""SimCSE's step in sentence-transformers and ours, from the same sentences to gradients."""

from __future__ import annotations

import copy
import itertools
import string
import tempfile

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertModel, BertTokenizer

from bench import pair
from bench.inputs import LENGTHS, config_of
from bench.timing import alternate, bench_row
from models.encoder import SentenceEncoder
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def simcse(args) -> dict:
    """MultipleNegativesRankingLoss on each sentence twice, against our contrastive term; tokenising included.

    The same weights, sentences, length, temperature and pooling ([CLS], no projection), dropout on.
    """
    config = config_of(args.model)
    words = _words(config.vocab_size - len(SPECIAL))
    torch.manual_seed(0)
    backbone = BertModel(config, add_pooling_layer=False)
    with tempfile.TemporaryDirectory() as folder:
        backbone.save_pretrained(folder)
        BertTokenizer(vocab={word: i for i, word in enumerate(SPECIAL + words)}).save_pretrained(folder)
        transformer = Transformer(folder, max_seq_length=args.length)
    peer = SentenceTransformer(modules=[transformer, Pooling(config.hidden_size, "cls")], device="cpu").train()
    peer_loss = MultipleNegativesRankingLoss(peer, scale=1 / pair.TEMPERATURE)
    tokenizer = copy.deepcopy(peer.tokenizer)
    encoder = SentenceEncoder(backbone, "cls_before_pooler", None, args.length, packed=True)
    model = EncoderForTraining(encoder, None, [Contrastive(pair.TEMPERATURE)]).train()

    def plain(number: int) -> None:
        text = _sentences(words, args, number + 1)
        pair.take_step(peer, lambda: peer_loss([peer.preprocess(text), peer.preprocess(text)], None), args.precision)

    def ours(number: int) -> None:
        text = _sentences(words, args, number + 1)
        made = tokenizer(text, padding=True, truncation=True, max_length=args.length, return_tensors="pt")
        views = {name: torch.stack([made[name]] * 2) for name in ("input_ids", "attention_mask")}
        pair.take_step(model, lambda: model(**views).loss, args.precision)

    timed = alternate(plain, ours, args.runs, warm_up=True)
    return bench_row("simcse step against sentence-transformers", args.precision, args.model, timed, args.runs)


def _words(count: int) -> list[str]:
    """Different words of five letters."""
    letters = itertools.product(string.ascii_lowercase, repeat=5)
    return ["".join(word) for word in itertools.islice(letters, 0, 97 * count, 97)]


def _sentences(words: list[str], args, seed: int) -> list[str]:
    """Sentences with the lengths of real ones; those that were cut are some words longer here, and cut again."""
    generator = np.random.default_rng(seed)
    lengths = generator.choice(len(LENGTHS), args.batch, p=np.array(LENGTHS) / sum(LENGTHS))
    lengths[lengths == len(LENGTHS) - 1] += 8
    return [" ".join(generator.choice(words, length - 2)) for length in lengths]
