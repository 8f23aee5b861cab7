"""Intervals and marks of the table of scores, against `eval.compare`."""

import json

import numpy as np
import pytest

from eval.compare.intervals import bootstrap
from eval.scores import AVERAGE, Result, row, rows_of, write_scores
from eval.sts import correlation
from report.runs import read_run_folder
from report.score_table import BEST, TIED, headline, score_rows, scored_differently


class Named:
    def __init__(self, name):
        self.name, self.split = name, "test"


@pytest.fixture
def make(write_run):
    def made(folder, noise, count=80, tasks=("STS-B", "SICK-R"), items=True, seed=1):
        """A run whose similarities are the gold scores and noise."""
        gold = np.random.default_rng(seed).uniform(0, 5, count)
        results = {}
        for number, name in enumerate(tasks):
            similarity = gold + noise * np.random.default_rng(number + int(100 * noise)).normal(size=count)
            value = correlation(similarity, gold)
            rows = [row(name, "test", "spearman", "all", count, value)]
            results[Named(name)] = Result(rows, {"similarity": similarity, "gold": gold})
        write_scores(write_run(folder) / "scores.json", results, rows_of(results, "m", None))
        if not items:
            (folder / "scores.items.npz").unlink()
        return read_run_folder(folder.name, folder, "scores.json")

    return made


def marks(rows):
    return {str(row.key): [cell and cell.mark for cell in row.cells] for row in rows}


def test_the_intervals_are_those_of_eval_compare(tmp_path, make):
    a, b = make(tmp_path / "a", 1.0), make(tmp_path / "b", 1.1)
    rows = score_rows([a, b], resamples=200, seed=5)
    assert [row.key.task for row in rows] == ["STS-B", "SICK-R", AVERAGE]
    reference = bootstrap(a.scores, b.scores, list(a.scores.headline), 200, 5)
    for one in rows:
        first, second = one.cells
        assert first.interval[0] < first.value < first.interval[1]
        low = np.percentile(reference[one.key] if first.value > second.value else -reference[one.key], 2.5)
        best, other = (first, second) if first.value > second.value else (second, first)
        assert (best.mark, other.mark) == (BEST, TIED if low <= 0 else "")
        assert first.gain is None and second.gain == second.value - first.value
        assert second.gain_interval == pytest.approx(tuple(np.percentile(-reference[one.key], [2.5, 97.5])))


def test_a_far_better_run_is_best_and_the_other_is_not_tied(tmp_path, make):
    rows = score_rows([make(tmp_path / "bad", 8.0), make(tmp_path / "good", 0.1)], resamples=100)
    assert marks(rows) == {name: ["", BEST] for name in ("STS-B", "SICK-R", "Avg.")}
    [said] = headline(["bad", "good"], rows)
    bad, good = rows[-1].cells
    assert said.startswith(f"good is better than bad: Avg. {bad.value:.2f} -> {good.value:.2f} (+")
    turned = score_rows([make(tmp_path / "good", 0.1), make(tmp_path / "bad", 8.0)], resamples=100)
    assert headline(["good", "bad"], turned)[0].startswith("bad is worse than good: Avg. ")


def test_missing_scores_and_missing_examples_are_seen(tmp_path, make, write_run):
    bare = read_run_folder("none", write_run(tmp_path / "none"), "scores.json")
    rows = score_rows([bare, make(tmp_path / "a", 2.0, items=False), make(tmp_path / "b", 0.5)], resamples=100)
    assert [cell is None for cell in rows[0].cells] == [True, False, False]
    assert rows[0].cells[1].interval is None
    assert rows[0].cells[2].mark == BEST, "a value can be the highest without an interval beside it"
    assert rows[0].cells[1].mark == ""
    assert [cell.gain for cell in rows[0].cells[1:]] == [None, None], "the baseline has no score"
    assert headline(["none", "a", "b"], rows) == []
    rows = score_rows([make(tmp_path / "a", 2.0, items=False), make(tmp_path / "b", 0.5)], resamples=100)
    assert (
        "b compared with a: Avg. " in headline(["a", "b"], rows)[0] and "no interval" in headline(["a", "b"], rows)[0]
    )


def test_items_of_another_scoring_give_no_interval(tmp_path, make):
    make(tmp_path / "a", 2.0)
    make(tmp_path / "b", 0.5)
    (tmp_path / "b" / "scores.items.npz").replace(tmp_path / "a" / "scores.items.npz")
    rows = score_rows([read_run_folder("a", tmp_path / "a", "scores.json")], resamples=100)
    assert [row.cells[0].interval for row in rows] == [None] * 3


def test_no_best_where_the_examples_or_the_averaged_tasks_differ(tmp_path, make):
    a = make(tmp_path / "a", 1.0)
    fewer, others = make(tmp_path / "b", 0.5, count=60), make(tmp_path / "c", 0.5, seed=9)
    for other in (fewer, others):
        assert not any(row.comparable for row in score_rows([a, other], resamples=100))
    more = make(tmp_path / "d", 0.5, tasks=("STS-B", "SICK-R", "STS12"))
    rows = {row.key.task: row for row in score_rows([a, more], resamples=100)}
    assert rows["STS-B"].comparable and not rows[AVERAGE].comparable
    assert [cell.mark for cell in rows[AVERAGE].cells] == ["", ""]
    assert rows["STS12"].cells[0] is None and rows["STS12"].cells[1].mark == ""


def rewrite(folder, **changes):
    path = folder / "scores.json"
    path.write_text(json.dumps([row | changes for row in json.loads(path.read_text())]))
    return read_run_folder(folder.name, folder, "scores.json")


def test_another_protocol_has_no_best_and_other_settings_are_named(tmp_path, make, write_run):
    a = make(tmp_path / "a", 1.0)
    make(tmp_path / "b", 0.5)
    other = rewrite(tmp_path / "b", aggregation="mean")
    assert not any(row.comparable for row in score_rows([a, other], resamples=100))
    one, two = rewrite(tmp_path / "a", max_length=32, pooling="cls"), rewrite(tmp_path / "b", max_length=64)
    bare = read_run_folder("c", write_run(tmp_path / "c"), "scores.json")
    assert scored_differently([one, bare, one, two]) == ["a and b were scored differently: max_length 32 and 64"]
    assert scored_differently([bare, one]) == []
