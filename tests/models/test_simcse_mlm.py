"""The language model's term against the library's own loss."""

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM

from data.collator import Collator
from data.source import Source
from data.tokenised import load_tokenised
from models.loading import load_tokenizer
from tests.methods import arguments, build_model
from tests.models.test_contrast import slow_info_nce

LENGTHS = [9, 4, 7, 6]


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_three_have_every_sentence_masked_and_a_hard_negative(
    folder, packed, sentences, tmp_path
):
    rows = ["\t".join(sentences[3 * i : 3 * i + 3]) for i in range(4)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    method, args = arguments("simcse_mlm", folder, mask_rate=0.5)
    tokenizer = load_tokenizer(folder)
    text = load_tokenised(Source((tmp_path / "rows.tsv",), 3), tokenizer, tmp_path / "cache")
    views, masking = method.views_of_rows(args, 3), method.masking(args)
    batch = Collator(text, tokenizer, views, 32, 0, masking)([(0, row, 0) for row in range(4)])
    assert (
        batch["masked_input_ids"].shape == batch["input_ids"].shape and len(batch["input_ids"]) == 3
    )
    model = build_model("simcse_mlm", folder, packed, mlm_weight=0.3, hard_negative_weight=0.7)
    out = model(**batch)

    lm = AutoModelForMaskedLM.from_pretrained(folder).eval()
    losses, vectors = [], [[], [], []]
    with torch.no_grad():
        for number in range(3):
            for row in range(4):
                mask = batch["attention_mask"][number, row : row + 1]
                states = lm.base_model(
                    batch["input_ids"][number, row : row + 1], mask
                ).last_hidden_state
                vectors[number].append(model.projection(states[:, 0])[0])
                logits = lm(batch["masked_input_ids"][number, row : row + 1], mask).logits[0]
                labels = batch["masked_labels"][number, row]
                losses += [
                    F.cross_entropy(logits[i], labels[i])
                    for i in range(len(labels))
                    if labels[i] != -100
                ]
    first, second, hard = map(torch.stack, vectors)
    contrast = slow_info_nce(first, second, 0.1, hard, 0.7)  # equation 8
    assert len(losses) > 20 and all(
        (batch["masked_labels"][number] != -100).any() for number in range(3)
    )
    assert out.terms["mlm"].item() == pytest.approx((sum(losses) / len(losses)).item(), rel=1e-5)
    assert out.terms["contrastive"].item() == pytest.approx(contrast, rel=1e-4)
    assert out.loss.item() == pytest.approx(contrast + 0.3 * out.terms["mlm"].item(), rel=1e-4)
