"""The language model's term against the library's own loss."""

from itertools import product

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM

from tests.methods import arguments, build_model
from tests.models.test_contrast import slow_info_nce


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_three_have_a_hard_negative(folder, packed, sentences, tmp_path, collated):
    rows = ["\t".join(sentences[3 * i : 3 * i + 3]) for i in range(4)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    method, args = arguments("simcse_mlm", folder, mask_rate=0.5)
    views, masking = method.views_of_rows(args, 3), method.masking(args)
    batch = collated(folder, tmp_path / "rows.tsv", views, range(4), columns=3, masking=masking)
    ids, masks, labels = (batch[n] for n in ("input_ids", "attention_mask", "masked_labels"))
    assert batch["masked_input_ids"].shape == ids.shape and len(ids) == 3
    assert (labels != -100).any(2).any(1).all()
    weights = {"mlm_weight": 0.3, "hard_negative_weight": 0.7}
    out = build_model("simcse_mlm", folder, packed, **weights)(**batch)

    lm = AutoModelForMaskedLM.from_pretrained(folder).eval()
    model = build_model("simcse_mlm", folder)
    losses, vectors = [], [[], [], []]
    with torch.no_grad():
        for number, row in product(range(3), range(4)):
            mask = masks[number, row : row + 1]
            states = lm.base_model(ids[number, row : row + 1], mask).last_hidden_state
            vectors[number].append(model.projection(states[:, 0])[0])
            logits = lm(batch["masked_input_ids"][number, row : row + 1], mask).logits[0]
            chosen = labels[number, row] != -100
            losses += F.cross_entropy(logits[chosen], labels[number, row][chosen], reduction="none")
    first, second, hard = map(torch.stack, vectors)
    contrast = slow_info_nce(first, second, 0.1, hard, 0.7)  # equation 8
    assert len(losses) > 20
    assert out.terms["mlm"].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    assert out.terms["contrastive"].item() == pytest.approx(contrast, rel=1e-4)
    assert out.loss.item() == pytest.approx(contrast + 0.3 * out.terms["mlm"].item(), rel=1e-4)
