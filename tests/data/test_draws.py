import numpy as np
import pytest

from data import draws
from data.draws import KeyedSampler

GOLDEN_KEYS = [3780415983200060025, 18004600069463683812, 3363579625585985403]
GOLDEN_UNIFORMS = [
    *(0.389154868091132, 0.15123046842856935, 0.3400423584125668),
    *(0.976226952211663, 0.8497987357906578, 0.1385133345137345),
]
GOLDEN_ORDER = [7, 6, 4, 2, 1, 3, 9, 5, 8, 0]
GOLDEN_INTEGERS = [934, 54, 128, 348]


def test_uniforms_are_splitmix64():
    """The published generator, seeded with 1234567: its first four numbers (Vigna's reference)."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    numbers = draws.uniforms(np.array([1234567], dtype=np.uint64), 4)[0]
    assert numbers.tolist() == [(number >> 11) / 2**53 for number in expected]


def test_golden_values():
    """A change of these would break exact resume over versions of this repository."""
    some = draws.keys(42, np.array([0, 0, 3]), np.array([0, 1, 999_999]), "mask 0")
    assert some.dtype == np.uint64
    assert some.tolist() == GOLDEN_KEYS
    assert draws.uniforms(some, 2).ravel().tolist() == GOLDEN_UNIFORMS
    assert [index for _, index, _ in KeyedSampler(42, 10, 8)] == GOLDEN_ORDER
    assert draws.generator(some[0]).integers(0, 1000, 4).tolist() == GOLDEN_INTEGERS


def test_an_order_depends_on_seed_and_epoch_alone():
    sampler, again = KeyedSampler(3, 50, 8), KeyedSampler(3, 50, 8)
    first = list(sampler)
    assert list(sampler) == first, "the same epoch has the same order, however often it is begun"
    sampler.set_epoch(4)
    again.set_epoch(4)
    assert list(sampler) == list(again)
    assert {epoch for epoch, *_ in sampler} == {4}
    assert [index for _, index, _ in sampler] != [index for _, index, _ in first]
    assert list(KeyedSampler(4, 50, 8)) != first


@pytest.mark.parametrize(("total", "held_out"), [(50, 0), (50, 5), (53, 5), (200, 2), (101, 1)])
def test_an_epoch_visits_every_example_once_but_those_held_out(total, held_out):
    """They are spread over the text."""
    sampler = KeyedSampler(3, total, 8, held_out)
    epochs, yielded, steps = zip(*sampler, strict=True)
    assert len(sampler) == len(yielded) == total - held_out
    assert sorted([*yielded, *sampler.held]) == list(range(total))
    assert {*np.diff(sampler.held)} <= {total // max(held_out, 1)}
    assert {*epochs} == {0} and list(steps) == [number // 8 for number in range(len(yielded))]
    assert {*map(type, [*epochs, *yielded, *steps])} == {int}
