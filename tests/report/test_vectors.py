"""Vectors of 16 or 8 bits."""

import base64

import numpy as np
import pytest

from report.measures import BUDGET, affordable, pack


def loop(rows):
    """Cosines one by one, 0 where a vector is zero."""
    found = np.zeros((len(rows), len(rows)))
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            size = np.sqrt((a * a).sum() * (b * b).sum())
            found[i, j] = (a * b).sum() / size if size else 0
    return found


@pytest.mark.parametrize("bits, most, error", [(16, 32767, 1e-4), (8, 127, 2e-2)])
def test_rounded_vectors_have_nearly_the_same_cosines_and_the_stated_error_is_the_largest(bits, most, error):
    vectors = np.random.default_rng(0).normal(size=(30, 24)).astype(np.float32) * 7
    vectors[4] = 0
    packed = pack("a", 2, vectors, bits)
    assert packed.bits == bits
    assert (np.abs(packed.rows.astype(int)).max(axis=1) == np.where(np.arange(30) == 4, 0, most)).all()
    difference = np.abs(loop(vectors.astype(float)) - loop(packed.rows.astype(float))).max()
    assert 0 < difference < error
    assert packed.error == pytest.approx(difference, rel=1e-6)


def test_what_the_page_reads():
    packed = pack("a", 2, np.array([[0.5, -1.0], [2.0, 1.0]]), 16)
    content = packed.content()
    assert {k: content[k] for k in ("label", "run", "dimensions", "bits")} == {
        "label": "a", "run": 2, "dimensions": 2, "bits": 16}  # fmt: skip
    rows = np.frombuffer(base64.b64decode(content["vectors"]), "<i2").reshape(2, 2)
    assert rows.tolist() == [[16384, -32767], [32767, 16384]]


@pytest.mark.parametrize("widths", [[312], [384, 384], [768] * 2, [768] * 4, [1024] * 9])
def test_the_page_stays_within_its_budget_and_takes_what_it_can(widths):
    bits, count = affordable(widths, 3000)
    size = sum(len(base64.b64encode(bytes(count * width * bits // 8))) for width in widths)
    assert size <= BUDGET + 4 * len(widths)
    assert count == 3000 or (bits == 8 and size > BUDGET * 0.99)
    assert bits == 16 or 2 * 3000 * sum(widths) * 4 / 3 > BUDGET
