import json
import math

import numpy as np
import pytest
from scipy.stats import spearmanr, t

import eval.compare.__main__ as command
import infocse
from eval.compare import intervals
from eval.compare.intervals import ABOVE, BELOW, INSIDE, compare, draws_of, welch
from eval.compare.sides import Score, from_files, published
from eval.retrieval.beir import BeirTask
from eval.scores import Key, Result, items_path, row, rows_of, write_rows, write_scores
from eval.sts import own_pairs
from tests.eval.toys import BeirFolder, letters, scored
from tests.refusals import refused

SEVEN = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
AVERAGE = Key("Avg.", "test", "test", "spearman")


def of_values(folder, name, values, split="test", **settings):
    """A file without examples: task -> Spearman."""
    results, path = {}, folder / f"{name}.json"
    for task, value in values.items():
        results[task] = Result([row(task, split, "spearman", "all", 100, value)])
    write_rows(path, rows_of(results, name, None, **settings))
    return path


def rewrite(path, change):
    """Other values in the rows of a file of scores."""
    write_rows(path, [row | change(row) for row in json.loads(path.read_text())])


def side(*paths):
    return from_files(",".join(map(str, paths)), paths)


def verdicts(lines):
    return {str(line.key): line.verdict for line in lines}


@pytest.fixture
def pairs():
    """Gold scores of two tasks, and three noisy ones: two equally good, and far worse ones."""
    rng = np.random.default_rng(5)
    golds = {"STS12": rng.integers(0, 26, 300) / 5, "STS13": rng.integers(0, 26, 200) / 5}
    cosines = []
    for noise in (1.0, 1.0, 4.0):
        noisy = {task: gold + noise * rng.normal(size=len(gold)) for task, gold in golds.items()}
        cosines.append(noisy)
    return golds, cosines


@pytest.fixture
def files(pairs, tmp_path):
    """Scores of the first two."""
    golds, cosines = pairs
    return [scored(tmp_path, "ab"[number], cosines[number], golds) for number in (0, 1)]


def test_single_values_are_averaged_and_a_constant_has_no_correlation():
    value, index = np.arange(4) / 3, np.random.default_rng(0).integers(4, size=(20, 4))
    flat = {"similarity": np.ones(4), "gold": value}
    for items, expected in (({"value": value}, 100 * value[index].mean(1)), (flat, np.zeros(20))):
        drawn = intervals.resampled_figures(items, 20, np.random.default_rng(0))
        assert drawn == pytest.approx(expected)


@pytest.mark.parametrize(("other", "verdict"), [(1, INSIDE), (2, ABOVE)])
def test_the_average_is_of_one_draw_of_every_task(pairs, tmp_path, monkeypatch, other, verdict):
    monkeypatch.setattr("eval.compare.intervals.RESAMPLES", 100)
    monkeypatch.setattr("eval.compare.intervals.DRAWN_AT_ONCE", 9000)  # several parts
    golds, cosines = pairs
    a, b = (side(scored(tmp_path, str(number), cosines[number], golds)) for number in (0, other))
    draws = []
    for task, gold in golds.items():
        rng = draws_of(Key(task, "test", "test", "spearman"))
        drawn = []
        for i in rng.integers(len(gold), size=(100, len(gold))):
            left, right = (spearmanr(cosines[of][task][i], gold[i]) for of in (0, other))
            drawn.append(100 * (left.statistic - right.statistic))
        draws.append(drawn)
    lines = compare(a, b)
    for line, drawn in zip(lines, [*draws, np.mean(draws, 0)], strict=True):
        ends = np.percentile(drawn, [2.5, 97.5])
        assert (line.outcome.low, line.outcome.high) == pytest.approx(tuple(ends))
    assert verdicts(lines) == dict.fromkeys(["STS12", "STS13", "Avg."], verdict)


def test_without_its_own_examples_a_figure_has_no_verdict(files):
    a, b = files
    rewrite(a, lambda row: {"value": row["value"] + (row["task"] == "STS12")})
    said = verdicts(compare(side(a), side(b)))
    assert said["STS12"].startswith("cannot say: the examples of A give")
    assert said["STS13"] == INSIDE and said["Avg."] == said["STS12"]
    items_path(a).unlink()
    assert {*verdicts(compare(side(b), side(a))).values()} == {"cannot say: no examples of B"}


@pytest.mark.parametrize(("n", "last"), [(299, 299), (300, 0)])
def test_files_scored_on_other_data_are_not_compared(files, n, last):
    for path, facts in zip(files, ((300, 299), (n, last)), strict=True):
        row = {"n": facts[0], "value": 100.0}
        rewrite(path, lambda old: row if old["task"] == "STS12" else {})  # noqa: B023
        arrays = {"value": np.ones(300), "example": [*range(299), facts[1]]}
        named = {f"STS12|test|test|{name}": values for name, values in arrays.items()}
        np.savez(items_path(path), **named)
    said = verdicts(compare(*map(side, files)))
    assert said["STS12"].startswith("cannot say: different examples")
    assert said["Avg."].startswith("cannot say")


def test_own_pairs_with_the_same_scores_but_other_sentences_are_other_examples(tmp_path):
    files = []
    for name in ("a", "b", "b2"):
        pairs = tmp_path / name / "mine.tsv"
        pairs.parent.mkdir()
        lines = [f"{name[0]}{number}\tother\t{number % 3}\n" for number in range(9)]
        pairs.write_text("sentence1\tsentence2\tscore\n" + "".join(lines), encoding="utf-8")
        results = {"mine": own_pairs(pairs).score(lambda texts: np.eye(len(texts), 3), tmp_path)}
        files.append(pairs.with_suffix(".json"))
        write_scores(files[-1], results, rows_of(results, name, None))
    a, b, b2 = files
    for others in ([b], [b, b2]):
        said = verdicts(compare(side(a), side(*others)))
        assert said == {"mine file": "cannot say: different examples"}
    assert verdicts(compare(side(b), side(b2))) == {"mine file": INSIDE}
    assert "mine file" in refused(side, a, b)


def test_sets_of_beir_of_one_name_and_size_with_other_documents_are_other_examples(tmp_path):
    files = []
    for name in ("a", "b", "b2"):
        beir = [BeirFolder(tmp_path / name, task) for task in ("first", "second")]
        beir[1].documents["d39"] += name[0]
        beir[1].write()
        results = {data.name: BeirTask(data.name).score(letters, data.root) for data in beir}
        files.append(tmp_path / f"{name}.json")
        write_scores(files[-1], results, rows_of(results, name, None))
    a, b, b2 = files
    said = verdicts(compare(side(a), side(b, b2)))
    assert said.pop("first ndcg@10") == INSIDE
    assert set(said.values()) == {"cannot say: different examples"} and "Avg. ndcg@10" in said
    assert "ndcg@10" in refused(side, a, b)
    assert set(verdicts(compare(side(b), side(b2))).values()) == {INSIDE}
    rows = json.loads(a.read_text())
    write_rows(a, [{name: row[name] for name in row if name != "data"} for row in rows])
    side(a, b)  # a file of an old version does not tell


def test_how_was_searched_is_a_setting_wherever_its_task_stands(tmp_path):
    data, files = BeirFolder(tmp_path), []
    pairs = Result([row("STS12", "test", "spearman", "all", 100, 70.0)])
    for search, language in (("dense", "english"), ("bm25", "english"), ("bm25", "german")):
        found = BeirTask(data.name, search=search, language=language).score(letters, data.root)
        files.append(tmp_path / f"{search}-{language}.json")
        write_rows(files[-1], rows_of({"STS12": pairs, data.name: found}, "m", None, bf16=False))
    dense, bm25, german = files
    assert "search bm25, before dense" in refused(side, dense, bm25)
    assert "language german, before english" in refused(side, bm25, german)
    assert "search dense and bm25" in command.report(side(dense), side(bm25), [])


def test_prompts_of_every_row_are_compared(tmp_path):
    results, files = {}, []
    for task in ("scifact", "STS12"):
        results[task] = Result([row(task, "test", "spearman", "all", 100, 70.0)])
    for query in ("q1: ", "q2: "):
        results["scifact"].rows[0]["prompts"] = {"query": query}
        files.append(tmp_path / f"{query[:2]}.json")
        write_rows(files[-1], rows_of(results, "m", None, prompts={"default": "d: "}))
    assert "prompts" in refused(side, *files)


def test_intervals_over_runs_are_the_textbook_ones():
    # Equal spread and n: 2n - 2 degrees of freedom.
    low, high = welch(Score(70.0, 4, 2.0), Score(68.0, 4, 2.0))
    half = t.ppf(0.975, 6) * 2.0 * math.sqrt(2 / 4)
    assert (low, high) == pytest.approx((2 - half, 2 + half))
    assert welch(Score(70.0, 2, 0.0), Score(70.0, 2, 0.0)) == (0.0, 0.0)
    low, high = intervals.prediction(1.14, Score(75.11, 50, 0.84), 1)
    half = 2.009575 * 0.84 * math.sqrt(1 / 50 + 1)  # t(0.975, 49) from a table
    assert (low, high) == pytest.approx((1.14 - half, 1.14 + half), abs=1e-5)


def test_several_seeds_a_side_get_welchs_interval(tmp_path):
    def runs(*values):
        named = {f"{values[0]}-{i}": {"STS-B": value} for i, value in enumerate(values)}
        return side(*(of_values(tmp_path, name, scores) for name, scores in named.items()))

    (line,) = compare(runs(70.0, 71.0, 72.0), runs(60.0, 62.0, 61.0))
    assert line.a == Score(71.0, 3, 1.0, examples=100, protocol="all")
    assert (line.outcome.method, line.verdict) == ("welch", ABOVE)
    assert verdicts(compare(runs(65.0, 73.0), runs(66.0, 71.0))) == {"STS-B": INSIDE}
    (line,) = compare(runs(60.5), runs(70.5, 71.5, 72.5))
    assert (line.outcome.method, line.verdict) == ("prediction", BELOW)


@pytest.mark.parametrize(("average", "verdict"), [(76.5, INSIDE), (78.0, ABOVE), (72.0, BELOW)])
def test_a_published_spread_says_whether_seeds_explain_the_difference(tmp_path, average, verdict):
    ours = side(of_values(tmp_path, "ours", dict.fromkeys(SEVEN, average)))
    spread = published("simcse-bert-base-50-seeds")
    lines = compare(ours, spread)
    assert verdicts(lines)["Avg."] == verdict and verdicts(lines)["STS12"] == "missing in B"
    opposite = {ABOVE: BELOW, BELOW: ABOVE, INSIDE: INSIDE}[verdict]
    assert verdicts(compare(spread, ours))["Avg."] == opposite
    single, alone = published("simcse-bert-base"), "cannot say from one run"
    averages = [line for line in compare(ours, single) if line.key == AVERAGE]
    found = [(line.b.mean, line.against, line.verdict) for line in averages]
    assert found == [(76.25, None, alone), (75.11, "simcse-bert-base-50-seeds", verdict)]
    turned = [line.verdict for line in compare(single, ours) if line.key == AVERAGE]
    assert turned == [alone, opposite]


def test_figures_of_other_tasks_examples_or_protocols_are_not_compared(tmp_path):
    files = [of_values(tmp_path, name, {"STS-B": 70.0}) for name in "ab"]
    rewrite(files[1], lambda row: {"aggregation": "identical"})
    said = verdicts(compare(*map(side, files)))
    assert said == {"STS-B": "cannot say: protocol all against identical"}
    ours = side(of_values(tmp_path, "ours", {"STS12": 70.0, "STS13": 80.0}))
    other = side(of_values(tmp_path, "other", {"STS12": 70.0, "STS14": 80.0}))
    for theirs in (published("simcse-bert-base-50-seeds"), other):
        said = verdicts(compare(ours, theirs))
        assert said["Avg."] == "cannot say: averages over different tasks"
    assert (said["STS13"], said["STS14"]) == ("missing in B", "missing in A")
    result = Result([row("STS-B retrieval", "test", "recall@1", "queries", 97, 80.0)])
    write_rows(tmp_path / "r.json", rows_of({"task": result}, "r", None))
    ours = side(tmp_path / "r.json")
    said = verdicts(compare(ours, published("diffcse-bert-base-194-queries")))
    assert said["STS-B retrieval recall@1"] == "cannot say: different examples, 97 against 194"


def test_an_average_of_other_figures_than_its_tasks_has_no_interval(files):
    rewrite(files[1], lambda row: {"value": row["value"] + 5 * (row["task"] == "Avg.")})
    said = verdicts(compare(*map(side, files)))
    assert "have the mean" in said["Avg."] and said["STS12"] == said["STS13"] == INSIDE


@pytest.mark.parametrize("change", [[math.nan] * 300, [1.0], None])
def test_damaged_examples_are_refused(files, change):
    path = items_path(files[0])
    if change is None:
        path.write_bytes(path.read_bytes()[:200])
    else:
        with np.load(path) as archive:
            items = dict(archive)
        np.savez(path, **items | {"STS12|test|test|gold": change})
    said = refused(compare, *map(side, files))
    assert "a/scores.items.npz: " in said and "score the model again" in said


def test_runs_of_one_side_must_be_alike_and_different(tmp_path):
    a = of_values(tmp_path, "a", {"STS12": 70.0, "STS13": 70.0})
    assert "given twice" in refused(side, a, a)
    said = refused(side, a, of_values(tmp_path, "b", {"STS12": 70.0}))
    assert "b.json: differs from " in said and "a.json (Avg" in said


def test_the_command_prints_a_table(files, tmp_path, capsys):
    a, b = map(str, files)
    rows = command.main([a, b, "--output", str(tmp_path / "out.json")])
    out = capsys.readouterr().out
    assert next(line for line in out.splitlines() if line.startswith("| Avg.")).count("|") == 7
    assert "1000 resamples" in out and "one run each says nothing about seeds" in out
    assert json.loads((tmp_path / "out.json").read_text()) == rows
    assert rows[0]["a"] - rows[0]["b"] == rows[0]["difference"] and rows[0]["low"] < rows[0]["high"]
    command.main([f"{a},{b}", "published:simcse-bert-base"])
    out = capsys.readouterr().out
    assert "B: published:simcse-bert-base; InfoCSE (arXiv 2210.06432), table 2" in out
    b = str(of_values(tmp_path, "c", {"MR": 70.0}))
    none = tmp_path / "none.json"
    assert "no figure in common" in refused(command.main, [a, b, "--output", str(none)])
    assert not none.exists()
    for run in (a, str(files[0].parent)):  # in a folder too, no scores of a run are overwritten
        assert "did not write" in refused(command.main, [run, b, "--output", a])
    command.main(["--list"])
    assert "| infocse-bert-base " in capsys.readouterr().out


def test_a_name_may_have_a_comma_and_a_run_is_its_scores(files, tmp_path):
    comma = of_values(tmp_path, "lr=1e-5,bs=64", {"STS12": 70.0})
    other = of_values(tmp_path, "b", {"STS12": 71.0, "MR": 1.0})
    assert [row["difference"] for row in command.main([str(other), str(comma)])] == [
        1.0,
        None,
        None,
    ]
    assert [row["difference"] for row in infocse.compare(other, comma)] == [1.0]
    run = str(files[0].parent)
    assert command.main([run, run])[0]["difference"] == 0
    (tmp_path / "later").mkdir()
    other.rename(tmp_path / "later" / "own.json")
    assert command.main([str(tmp_path / "later"), str(comma)])[0]["difference"] == 1


def test_files_that_were_scored_differently_are_named(tmp_path, capsys):
    short = {"pooling": "avg", "max_length": 32, "bf16": False}
    old = of_values(tmp_path, "old", {"STS12": 70.0})  # of a version without settings
    first = of_values(tmp_path, "one", {"STS12": 71.0}, **short)
    more = short | {"max_length": 128, "bf16": True, "prompts": {"query": "q: "}}
    other = of_values(tmp_path, "other", {"STS12": 72.0}, **more)
    command.main([str(first), str(other)])
    said = "A and B were scored differently: max_length 32 and 128, bf16 False and True, prompts {}"
    assert said in capsys.readouterr().out
    for unknown_or_same in (old, first):
        command.main([str(first), str(unknown_or_same)])
        assert "differently" not in capsys.readouterr().out
    assert side(old, first).scores == side(first, old).scores
    for sides in ((first, other), (old, first, other)):
        said = refused(side, *sides)
        assert "other.json: differs from " in said
        assert "max_length 128, before 32, bf16 True, before False, prompts " in said
