import pytest
from torch.utils.data import DataLoader

from data import draws
from data.sampler import KeyedSampler, Keys


def test_an_epoch_visits_every_example_once_with_its_epoch():
    sampler = KeyedSampler(seed=3, total=50, batch_size=8)
    keys = list(sampler)
    assert len(sampler) == len(keys) == 50
    assert [index for _, index, _ in keys] == draws.permutation(3, 0, 50).tolist()
    assert {epoch for epoch, *_ in keys} == {0}
    assert [step for *_, step in keys] == [place // 8 for place in range(50)]
    assert {type(part) for key in keys for part in key} == {int}


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


def test_the_data_set_hands_the_keys_to_the_collator():
    sampler = KeyedSampler(3, 10, 8)
    sampler.set_epoch(2)
    assert len(Keys(10)) == 10
    assert Keys(10)[(2, 7, 0)] == (2, 7, 0)
    for workers in (0, 1):
        loader = DataLoader(Keys(10), 4, sampler=sampler, collate_fn=list, num_workers=workers, drop_last=True)
        keys = list(sampler)
        assert list(loader) == [keys[:4], keys[4:8]]


@pytest.mark.parametrize("largest", [draws.LARGEST_TABLE, 20])
def test_rows_are_those_that_the_batches_held(monkeypatch, largest):
    monkeypatch.setattr(draws, "LARGEST_TABLE", largest)
    sampler = KeyedSampler(3, 50, 8)
    sampler.set_epoch(1)
    assert sampler.rows(1, 2, 3) == [index for _, index, step in sampler if 2 <= step < 5]


@pytest.mark.parametrize(("total", "held_out"), [(50, 5), (53, 5), (200, 2), (101, 1)])
def test_held_out_examples_are_spread_over_the_text_and_never_yielded(total, held_out):
    sampler = KeyedSampler(3, total, 8, held_out)
    yielded = [index for _, index, _ in sampler]
    assert len(sampler) == len(yielded) == total - held_out
    assert sorted(yielded + sampler.held) == list(range(total))
    assert {b - a for a, b in zip(sampler.held, sampler.held[1:], strict=False)} <= {total // held_out}
    assert sampler.rows(0, 1, 2) == yielded[8:24]
