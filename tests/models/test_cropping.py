"""Crops: lengths, places, deletions, titles; the loss against a loop; whole documents."""

import numpy as np
import pytest
import torch

from data.collator import Collator
from data.source import Source
from data.tokenised import load_tokenised
from models.objectives import cropping
from models.objectives.cropping import Arguments, delete, draw_crops, two_way_nce
from tests.models.test_contrast import slow_info_nce

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


def test_deletion_drops_its_share_and_never_everything():
    generator = np.random.default_rng(0)
    left = [len(delete(np.arange(50), None, generator, 0.1)) for _ in range(DRAWS)]
    assert abs(np.mean(left) - 45) < 0.2
    assert min(len(delete(np.arange(2), None, generator, 0.99)) for _ in range(DRAWS)) == 1


def test_the_loss_is_the_mean_of_both_directions():
    torch.manual_seed(0)
    first, second = torch.randn(2, 4, 3)

    expected = (slow_info_nce(first, second, 0.2) + slow_info_nce(second, first, 0.2)) / 2
    assert two_way_nce(first, second, 0.2).item() == pytest.approx(expected, rel=1e-5)


def test_views_are_spans_of_whole_documents_and_agree_on_one_draw(
    bert_tokenizer, sentences, tmp_path
):
    (tmp_path / "text.txt").write_text(
        "\n".join(" ".join(sentences[i : i + 20]) for i in range(0, 200, 20)) + "\n"
    )
    text = load_tokenised(Source((tmp_path / "text.txt",)), bert_tokenizer, tmp_path / "cache")
    args = Arguments(delete_rate=0.0, crop_most=0.2)
    batch = Collator(text, bert_tokenizer, cropping.METHOD.views(args), 16, 0)(
        [(0, i, 0) for i in range(10)]
    )
    again = Collator(text, bert_tokenizer, cropping.METHOD.views(args), 16, 0)([(0, 7, 5)])
    late = 0
    for row in range(10):
        document, _ = text.sentences([row], 0, 10**6)
        places = []
        for ids, mask in zip(
            batch["input_ids"][:, row], batch["attention_mask"][:, row], strict=True
        ):
            shown = ids[mask == 1].numpy()[1:-1]
            assert 4 <= len(shown) <= 14
            starts = [
                i
                for i in range(len(document))
                if np.array_equal(document[i : i + len(shown)], shown)
            ]
            assert starts
            places.append((starts[0], len(shown)))
        late += max(start for start, _ in places) > 14
    assert late > 5
    shown = batch["attention_mask"][0, 7].sum()
    assert torch.equal(again["input_ids"][0, 0, :shown], batch["input_ids"][0, 7, :shown])
