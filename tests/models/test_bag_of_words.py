"""The bag of words as a term of a method, against the masked language model word by word."""

import numpy as np
import pytest
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM

from data.views import IGNORED, View
from models.auxiliary import TiedHead, load_masked_lm
from models.bag_of_words import BagOfWords
from models.families import output_of
from models.loading import load_config, load_tokenizer
from models.objectives.base import Batch
from tests.methods import build_model


@pytest.fixture
def batch(folder, text_file, collated):
    shorter = View(lambda ids, starts, generator: np.repeat(ids[::2], 2))
    return collated(folder, text_file, [View(), shorter], range(6), words=True)


def test_the_words_are_those_of_the_text_before_its_edit(folder, batch, sentences):
    tokenizer = load_tokenizer(folder)
    special = set(tokenizer.all_special_ids)
    for view in batch["words"]:
        for row, words in enumerate(view):
            tokens = words[words != IGNORED].tolist()
            assert len(tokens) == len(set(tokens))
            assert set(tokens) == set(tokenizer(sentences[row])["input_ids"]) - special
    distinct = (batch["words"][0] != IGNORED).sum()
    assert distinct < batch["attention_mask"][0].sum(), "some words are repeated"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pooling", ["avg", "cls_before_pooler"])
def test_the_term_is_the_checkpoint_s_head_on_the_vectors(folder, batch, pooling, tied, tmp_path):
    config = load_config(folder)
    config.tie_word_embeddings = tied
    lm = AutoModelForMaskedLM.from_config(config).eval()
    for part in (lm, load_tokenizer(folder)):
        part.save_pretrained(tmp_path)
    model = build_model("simcse", tmp_path, pooling=pooling)
    model.objectives.append(BagOfWords(TiedHead(load_masked_lm(str(tmp_path))), 0.7))
    output = model(**batch)
    (transform, decoder), total, count = output_of(lm), 0.0, 0
    parts = (batch[n].flatten(0, 1) for n in ("input_ids", "attention_mask", "words"))
    for ids, mask, words in zip(*parts, strict=True):
        states = lm(input_ids=ids[mask == 1][None], output_hidden_states=True).hidden_states[-1][0]
        vector = states.mean(0) if pooling == "avg" else states[0]
        log_p = F.log_softmax(decoder(transform(vector)), dim=-1)
        for word in words[words != IGNORED].tolist():
            total, count = total - log_p[word].item(), count + 1
    assert output.terms["bow"].item() == pytest.approx(total / count, rel=1e-4)
    expected = output.terms["contrastive"].item() + 0.7 * total / count
    assert output.loss.item() == pytest.approx(expected, rel=1e-4)
    objective = model.objectives[-1]
    assert objective.tokens(Batch.of(**batch)) == count
    assert (objective.head.weight is None) == tied, "a tied matrix is the encoder's own"
    output.loss.backward()
    assert all(p.grad.abs().max() > 0 for p in objective.parameters())
