"""Where tokens and labels are, against slow loops; and what travels is what the mask alone would give."""

import numpy as np
import pytest
import torch

from models.fast.packing import EDGE, IGNORED, Grid, Layout, Packing, filled


def batch(seed, rows=6, columns=13, left=False):
    generator = np.random.default_rng(seed)
    mask = np.arange(columns) < generator.integers(1, columns + 1, rows)[:, None]
    mask = mask[:, ::-1].copy() if left else mask
    labels = np.where(
        mask & (generator.random(mask.shape) < 0.3), generator.integers(5, 99, mask.shape), IGNORED
    )
    return mask, labels


def by_loops(mask, labels, static):
    """The places of the tokens in the grid, and among them the labelled ones with their labels."""
    rows, columns = mask.shape
    length = columns + -columns % EDGE
    real = {
        row * length + column
        for row in range(rows)
        for column in range(columns)
        if mask[row, column]
    }
    kept = real | {row * length for row in range(rows)}

    def close(chosen, spare, share):
        step = max(1, rows * length // share)
        wanted = step * -(-max(len(chosen), 1) // step) if static else filled(len(chosen))
        return sorted(chosen | set(sorted(spare - chosen)[: wanted - len(chosen)]))

    slots = close(kept, set(range(rows * length)), 8)
    first = [slots.index(row * length) for row in range(rows)]

    def label(token):
        row, column = divmod(slots[token], length)
        return labels[row, column] if column < columns else IGNORED

    marked = {token for token in range(len(slots)) if label(token) != IGNORED}
    tokens = close(marked, set(range(len(slots))) - set(first), 16)
    return slots, first, tokens, [label(token) for token in tokens]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_layout_equals_a_plain_loop(seed, left, static):
    mask, labels = batch(seed, left=left)
    layout = Layout(mask, {"masked": labels}, static)
    slots, first, tokens, targets = by_loops(mask, labels, static)
    parts, marks = layout.parts, layout.labels("masked", None)
    assert parts["slots"].tolist() == slots and parts["first"].tolist() == first
    assert marks.tokens.tolist() == tokens and marks.targets.tolist() == targets
    assert marks.read.tolist() == sorted({*first, *tokens})
    assert (
        marks.read[marks.first_among].tolist() == first
        and marks.read[marks.tokens_among].tolist() == tokens
    )
    source = mask.ravel()[parts["source"].numpy()]
    assert source.sum() >= mask.sum() and set(np.flatnonzero(mask)) <= set(parts["source"].tolist())


@pytest.mark.parametrize("layout", [Layout, Grid])
def test_labels_that_did_not_travel_are_found_from_the_batch(layout):
    mask, labels = batch(3)
    travelled = layout(mask, {"masked": labels}).labels("masked", None)
    marks = layout.of(torch.from_numpy(mask).long()).labels("masked", torch.from_numpy(labels))
    for part, other in zip(travelled, marks, strict=True):
        assert (part is None and other is None) or torch.equal(part, other)


def test_a_padded_batch_knows_its_labelled_places():
    mask, labels = batch(4, rows=30)
    marks = Grid(mask, {"masked": labels}).labels("masked", None)
    count = (labels != IGNORED).sum()
    assert len(marks.tokens) % 128 == 0 and len(marks.tokens) - count < 128
    assert marks.tokens[:count].tolist() == np.flatnonzero(labels != IGNORED).tolist()
    assert (marks.targets[count:] == IGNORED).all()
    assert marks.targets[:count].tolist() == labels[labels != IGNORED].tolist()


def test_groups_of_views_and_chunks_of_sentences_have_layouts_of_their_own():
    masks = [batch(seed) for seed in (5, 6)]
    mask, labels = (np.stack(arrays) for arrays in zip(*masks, strict=True))
    made = Packing(Layout, chunk=4).layouts(mask, {"masked": ((1,), labels[1:])})
    assert set(made) == {
        (views, *rows) for views in ((0, 1), (0,), (1,)) for rows in ((0, 6), (0, 4), (4, 6))
    }
    chunk, whole = made[(1,), 4, 6], Layout(mask[1, 4:], {"masked": labels[1, 4:]})
    assert torch.equal(chunk.numbers, whole.numbers)
    assert made[(0, 1), 0, 6].batch == 12
