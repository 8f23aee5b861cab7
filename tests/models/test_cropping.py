"""Crops: lengths, places, whole documents."""

import numpy as np
import pytest
import torch

from models.objectives import cropping
from models.objectives.cropping import Arguments, draw_crops

DRAWS = 2000


def drawn(length, **flags):
    """(draws, 2, 2)."""
    generator, args = np.random.default_rng(0), Arguments(**flags)
    return np.array([draw_crops(length, args, generator) for _ in range(DRAWS)])


def test_spans_lie_in_the_document_with_every_length_and_place_of_the_range():
    bounds = drawn(40, crop_least=0.1, crop_most=0.4)
    sizes = bounds[..., 1] - bounds[..., 0]
    assert set(np.unique(sizes)) == set(range(4, 17))
    assert bounds.min() == 0 and bounds.max() == 40
    assert abs(sizes.mean() - 10) < 0.2
    (a, b), (c, d) = bounds.transpose(1, 2, 0)
    apart = (b <= c) | (d <= a)
    assert 0.1 < apart.mean() < 0.9
    assert 0.45 < (a < c).mean() < 0.55


@pytest.mark.parametrize(("length", "sizes"), [(3, {3}), (4, {4}), (7, {4}), (0, {0})])
def test_a_short_document_limits_its_spans(length, sizes):
    bounds = drawn(length)
    assert set(np.unique(bounds[..., 1] - bounds[..., 0])) == sizes


def test_views_are_spans_of_one_draw(tiny_bert, bert_tokenizer, sentences, tmp_path, collated):
    documents, file = [" ".join(sentences[i : i + 20]) for i in range(0, 200, 20)], "text.txt"
    (tmp_path / file).write_text("\n".join(documents) + "\n")
    views = cropping.METHOD.views(Arguments(delete_rate=0.0, crop_most=0.2))
    given = str(tiny_bert), tmp_path / file, views
    batch, again = collated(*given, range(10), 16), collated(*given, [7], 16, step=5)
    late = 0
    for row, document in enumerate(documents):
        whole, starts = bert_tokenizer(document, add_special_tokens=False)["input_ids"], []
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
            shown = ids[row][mask[row] == 1].tolist()[1:-1]
            assert 4 <= len(shown) <= 14
            places = range(len(whole))
            starts.append(next(i for i in places if whole[i : i + len(shown)] == shown))
        late += max(starts) > 14
    assert late > 5
    shown = batch["attention_mask"][0, 7].sum()
    assert torch.equal(again["input_ids"][0, 0, :shown], batch["input_ids"][0, 7, :shown])
