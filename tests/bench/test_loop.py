"""The loop's bench runs both sides on the same sentences; the figures themselves are no test."""

import pytest

from bench import loop
from bench.__main__ import main
from data.tokenizer import SpecialTokens


def test_both_loops_run_and_give_a_row():
    [row] = main(["loop", "--rows=80", "--batch=4", "--steps", "2", "4"])
    assert row["name"] == "loop"
    assert {"plain_ms", "ours_ms", "ratio", "runs", "threads"} <= set(row)


def test_the_plain_collator_pads_and_masks_two_equal_views():
    tokenizer, sentences = loop.generated(8)
    special = SpecialTokens.of(tokenizer)
    assert (special.prefix, special.suffix, special.mask) == ([101], [102], 103)
    data = loop.tokenised(sentences, (special.prefix, special.suffix), 16)
    batch = loop.PairCollator(tokenizer, 0.4)([data[i] for i in range(8)])
    assert batch["input_ids"].shape == (8, 2, 16)
    assert (batch["input_ids"][:, 0] == batch["input_ids"][:, 1]).all()
    chosen = (batch["mlm_labels"] != -100).sum() / (batch["attention_mask"].sum() - 32)
    assert 0.2 < chosen < 0.6
    assert batch["input_ids"][0, 0, :3].tolist() == [101, *sentences[0][:2]]


def test_the_slope_leaves_out_what_a_run_costs_once(monkeypatch):
    clock = iter([0.0, 5.0, 5.0, 10.2])
    monkeypatch.setattr(loop.time, "process_time", lambda: next(clock))
    assert loop._slope(lambda steps: None, [100, 200]) == pytest.approx(2.0)
