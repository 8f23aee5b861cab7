"""Mean, deviation and verdict of runs that are written by hand."""

import statistics
from dataclasses import replace

import pytest

from eval.compare.sides import Score, published
from eval.retrieval.beir import PAPER14
from eval.scores import Key, write_rows
from eval.scores import row as score_row
from papers import results, runs
from papers.page import section
from papers.plans import plan_of
from papers.results import collect
from papers.runs import Choice
from papers.specification import Column, Table, TableRow

DEV = Key("STS-B", "dev", "test", "spearman")
AVERAGE = Key("Avg.", "test", "test", "spearman")
RECORD = {"steps": 500, "commit": "abc", "versions": {"torch": "2"}}
RECORD["hardware"] = {"machine": "m", "device": "cpu"}
ONE_COLUMN = (Column("STS-B dev", DEV),)


def one_table(*rows, columns=ONE_COLUMN, **more):
    return Table("t-1", "A title", "A paper", "table 1", columns, rows, **more)


def infocse(label="InfoCSE", **more):
    return TableRow(label, "bert-base", config="infocse", published="infocse-bert-base", **more)


def finish(folder, score, record=RECORD):
    """A finished run, as training and scoring would leave it."""
    runs.record_untrained(folder, record)
    name = {"STS-B": "dev", "Avg.": "sts"}.get(score["task"], f"beir-{score['task']}")
    write_rows(folder / f"{name}.json", [score])


def finish_dev(table, row, choice, *values):
    """Finished runs of the first seeds with these dev scores."""
    plan = plan_of(table, row, choice)
    for seed, value in zip(choice.seeds, values, strict=False):
        dev = score_row("STS-B", "dev", "spearman", "single", 1500, value)
        finish(plan.folder(choice, seed), dev)


@pytest.fixture
def choice(tmp_path):
    return Choice(backbone="mini", model="m", runs=str(tmp_path))


def test_mean_deviation_and_count_are_over_the_finished_runs(choice):
    table = one_table(infocse())
    finish_dev(table, table.rows[0], choice, 80.0, 83.0, 99.0)
    folder = plan_of(table, table.rows[0], choice).folder(choice, 2)
    runs.write_run(folder, {**RECORD, "trajectory": {}, "status": "running"})
    [row] = collect(table, choice)
    assert row["ours"] == 81.5 and row["ours_runs"] == 2
    assert row["ours_std"] == pytest.approx(statistics.stdev([80.0, 83.0]))
    assert row["by_seed"] == {0: 80.0, 1: 83.0}
    assert row["published"] == 85.49 and row["published_runs"] == 1
    assert row["provenance"][1]["commit"] == "abc" and row["provenance"][1]["steps"] == 500
    assert row["verdict"] == "not comparable: other backbone, other text, other budget"


def verdict(name, key, *values, differs=()):
    std = statistics.stdev(values) if len(values) > 1 else None
    ours = Score(statistics.mean(values), len(values), std)
    return results.verdict(key, ours, published(name), differs)


def test_a_published_single_run_is_judged_by_its_method_s_spread():
    record = "75.11 ± 0.84 (n = 50, 73.16 to 76.70) of simcse-bert-base-50-seeds"
    assert verdict("simcse-bert-base", AVERAGE, 75.0) == f"inside {record}"
    assert verdict("simcse-bert-base", AVERAGE, 73.0, 73.1) == f"below {record}"
    # the printed 78.41 itself, three times: its own method's 50 seeds lie lower
    words = verdict("simcse-bert-large", AVERAGE, 78.41, 78.41, 78.41)
    assert words.startswith("above 74.95 ± 1.74 (n = 50")
    assert words.endswith("of simcse-bert-large-50-seeds")
    assert verdict("infocse-bert-base", AVERAGE, 78.0, 79.0) == "cannot say from one run"
    note = "the best 3 of 7 seeds: the mean is too high and the std too small for the method"
    assert verdict("simcse-bert-base-best-3-of-7", AVERAGE, 50.0) == f"below ({note})"
    words = verdict("simcse-bert-base", AVERAGE, 75.0, differs=("other text",))
    assert words == "not comparable: other text"
    assert verdict("simcse-mlm-bert-base", AVERAGE, 75.0) == "not printed"
    assert results.verdict(DEV, Score(80.0), None, ("other text",)) == "not printed"


def finish_sts(folder, value, record=RECORD):
    finish(folder, score_row("Avg.", "test", "spearman", "mean of tasks", 9, value), record)


PUBLISHED = "s-simcse-sentence-bert-base"
S_SIMCSE = TableRow("S-SimCSE", "bert-base", config="s-simcse", published=PUBLISHED)


def test_a_maximum_is_shown_and_not_judged(choice):
    columns = (Column("max", AVERAGE, "max"), Column("Avg.", AVERAGE))
    table = one_table(S_SIMCSE, columns=columns)
    plan = plan_of(table, S_SIMCSE, choice)
    for seed, value in enumerate((70.0, 72.0, 71.0)):
        finish_sts(plan.folder(choice, seed), value)
    highest, mean = collect(table, choice)
    assert (highest["published"], highest["ours"]) == (77.35, 72.0)
    assert highest["verdict"] == "cannot say: a maximum"
    assert (mean["published"], mean["published_std"], mean["ours"]) == (76.92, 0.32, 71.0)


def test_the_best_three_of_seven_seeds_and_their_steps(choice):
    steps = Column("best step", Key("best", "dev", "test", "steps"))
    table = one_table(S_SIMCSE, columns=(steps, Column("best 3", AVERAGE, "best 3 of 7")))
    choice = replace(choice, seeds=range(7))
    plan = plan_of(table, S_SIMCSE, choice)
    for seed, value in enumerate((70.0, 76.0, 71.0, 75.0, 77.0, 60.0, 76.5)):
        if seed == 6:
            early = collect(table, choice)[1]
            assert early["ours_runs"] == 3
            assert early["verdict"] == "cannot say: best 3 of 7, but 6 runs"
        finish_sts(plan.folder(choice, seed), value, {"best": {"step": 100 * seed, "value": 1.0}})
    steps, best = collect(table, choice)
    assert steps["ours"] == 300.0 and steps["ours_runs"] == 7
    assert best["ours"] == pytest.approx((76.0 + 76.5 + 77.0) / 3) and best["ours_runs"] == 3
    assert best["ours_std"] == pytest.approx(0.5) and best["by_seed"][5] == 60.0
    assert best["verdict"] == "not comparable: other backbone, other text, other budget"


def test_an_average_over_sets_with_files_of_their_own_needs_them_all(choice):
    keys = [Key(task, "test", "test", "ndcg@10") for task in ("scifact", "Avg.")]
    table = one_table(infocse(), columns=tuple(Column(key.task, key) for key in keys))
    folder = plan_of(table, table.rows[0], choice).folder(choice, 0)
    for i, name in enumerate(PAPER14):
        if i == 13:
            assert [row["ours"] for row in collect(table, choice)] == [11.0, None]
        finish(folder, score_row(name, "test", "ndcg@10", "mean of queries", 5, i))
    assert [row["ours"] for row in collect(table, choice)] == [11.0, 6.5]


def test_a_page_names_the_rows_that_its_command_does_not_describe(choice):
    rows = [infocse(label, overrides={"mask_rate": label}) for label in ("0.1", "0.2", "0.3")]
    table = one_table(*rows)
    for row, values in zip(rows, ([80.0, 81.0, 82.0], [80.0, 81.0, 82.0], [80.0]), strict=True):
        finish_dev(table, row, choice, *values)
    collected = collect(table, choice)
    assert "- seed 0 alone: 0.3\n" in section(table, collected, choice)
    assert collected[0]["provenance"][0]["scored_step"] == 500
    for seed, facts in collected[1]["provenance"].items():
        facts |= {"steps": 75 + seed, "hardware": {"device": "gpu"}, "precision": "float32"}
    written = section(table, collected, replace(choice, steps=500))
    assert "- 75, 76, 77 steps: 0.2\n- float32: 0.2\n- on gpu: 0.2\n" in written
    first = table.with_rows(["0.1"])
    assert "Other runs" not in section(first, collected[:1], choice)


def test_a_resumed_run_names_what_it_began_with():
    start = {"commit": "e" * 40, "hardware": {"device": "NVIDIA X"}}
    facts = runs.facts_of({"trajectory": {}, "commit": "f" * 40, "earlier_starts": [start]})
    row = {"label": "a", "provenance": {0: {**facts, "run": "r"}}}
    written = section(one_table(), [row], Choice())
    assert f"- commit: {'f' * 40}" in written
    assert f"- began with commit: {'e' * 40} on NVIDIA X" in written
