"""The table of scores, against `eval.compare`."""

import numpy as np

from eval.compare.intervals import compare
from eval.dev import BETTER, judged
from eval.scores import AVERAGE
from report.runs import read_run_folder
from report.score_table import headline, score_rows
from tests.eval.toys import scored

from .conftest import write_run


def make(folder, noise, items=True):
    """A run whose similarities are the gold scores and noise."""
    gold = np.random.default_rng(1).uniform(0, 5, 80)
    noises = noise * np.random.default_rng(int(100 * noise)).normal(size=(2, 80))
    cosines = dict(zip(("STS-B", "SICK-R"), gold + noises, strict=True))
    write_run(folder)
    scored(folder.parent, folder.name, cosines, dict.fromkeys(cosines, gold))
    if not items:
        (folder / "scores.items.npz").unlink()
    return read_run_folder(folder.name, folder)


def test_every_later_run_is_compared_with_the_first_as_by_eval_compare(tmp_path):
    runs = [make(tmp_path / "a", 1.0), make(tmp_path / "b", 1.1), make(tmp_path / "c", 0.1)]
    rows = dict(score_rows(runs))
    assert [key.task for key in rows] == ["STS-B", "SICK-R", AVERAGE]
    for line in compare(runs[1].scores, runs[0].scores):
        first, second, third = rows[line.key]
        assert first.line is None and (second.value, second.line) == (line.a.mean, line)
        assert second.range == (line.outcome.low, line.outcome.high)
        assert (second.verdict, third.verdict) == (judged(*second.range), BETTER)
    first, _, third = rows[next(reversed(rows))]
    said = headline("abc", list(rows.items()))
    assert said[1].startswith(f"c is better than a: Avg. {first.value:.2f} -> {third.value:.2f} (+")
    assert headline("ca", score_rows(runs[::-2]))[0].startswith("a is worse than c: Avg. ")
