import numpy as np
import pytest

from eval.metrics.correlation import spearman
from eval.scores import average, row
from eval.sts import STS_DEV, STS_TEST, Pairs, StsTask, own_pairs, similarities
from eval.tasks import Options, count_seen, describe_seen, tasks_named
from tests.eval.toys import SUBSETS, sts_files, write_sts
from tests.refusals import refused

PUBLISHED = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}
PUBLISHED |= {"STS-B": 1379, "SICK-R": 4927}


def pairs_of(name, count):
    """A name and a number on both sides; SICK's scores begin at 1."""
    low = 1 if name in ("train", "trial", "test_annotated") else 0
    scores = [f"{1 + i % 5}" if low else f"{i % 11 / 2:.3f}" for i in range(count)]
    return [(f"{name} left {i}", f"{name} right {i}", scores[i]) for i in range(count)]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Generated files of the published sizes."""
    return write_sts(tmp_path_factory.mktemp("corpora"), sts_files(pairs_of, PUBLISHED))


def encode(sentences):
    """Left sentences at angle 0, right ones at an angle that mostly falls as the score rises."""
    angles = []
    for sentence in sentences:
        i = int(sentence.split()[-1])
        angles.append(0.0 if " left " in sentence else 2 - i % 11 / 11 + (i % 2) * (i % 7) / 5)
    return np.array([np.cos(angles), np.sin(angles)]).T


@pytest.mark.parametrize("task", [*STS_TEST, *STS_DEV], ids=lambda it: f"{it.name} {it.split}")
def test_a_task_reads_its_files_and_gives_a_row(task, data_dir, tmp_path, monkeypatch):
    """And leaves nothing in the temporary folder, where one of a fixed name is the first user's."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    row = task.score(encode, data_dir).rows[0]
    assert not [*tmp_path.iterdir()]
    value = row.pop("value")
    assert 0 < abs(value) < 100
    size = {"STS-B": 1500, "SICK-R": 500} if task.split == "dev" else PUBLISHED
    whole = "all" if task.name in SUBSETS else "single"
    how = {"mode": "test", "metric": "spearman", "aggregation": whole}
    assert row == {"task": task.name, "split": task.split, "n": size[task.name]} | how


@pytest.mark.parametrize("count", [2, 4])
def test_another_number_of_pairs_than_the_published_one_is_refused(tmp_path, count):
    pairs = Pairs(["a"] * count, ["b"] * count, [float(i) for i in range(count)])
    said = refused(StsTask("STS99", "test", lambda _: {"": pairs}, 3).score, encode, tmp_path)
    assert "STS99 test in" in said and f"has {count} scored pairs instead of 3" in said
    assert StsTask("own", "file", lambda _: {"": pairs}, None).load(tmp_path) == {"": pairs}


def test_a_file_of_a_year_that_is_shorter_than_the_other_is_refused(tmp_path):
    files = {"input": "a\tb\nc\td\n", "gs": "1.0\n"}
    named = {f"STS/STS13-en-test/STS.{name}.FNWN.txt": text for name, text in files.items()}
    said = refused(STS_TEST[1].load, write_sts(tmp_path, named))
    assert "STS13 in" in said and "truncated or changed" in said


@pytest.mark.parametrize("count", [0, 1, 2])
def test_own_pairs_of_one_score_are_refused(tmp_path, count):
    lines = ["sentence1\tsentence2\tscore", "a\tb\t3", "c\td\t3.0"]
    (tmp_path / "own.tsv").write_text("\n".join(lines[: count + 1]))
    said = refused(own_pairs(str(tmp_path / "own.tsv")).load, "nowhere")
    assert f"own has {count} pairs of one score" in said


def test_tasks_are_chosen_by_group_or_name():
    assert [task.name for task in tasks_named(["sts"], Options())] == list(PUBLISHED)
    assert tasks_named(["sts"], Options("dev")) == list(STS_DEV)
    named = tasks_named(["sts12", "Sick-R"], Options())
    assert [task.name for task in named] == ["STS12", "SICK-R"]
    assert tasks_named(["STS-B"], Options("dev")) == [STS_DEV[0]]
    assert tasks_named([], Options()) == []
    names = [task.name for task in tasks_named(["transfer", "MR", "transfer"], Options())]
    assert len(names) == 7 and names.count("MR") == 1
    assert {task.name: task.pairs for task in STS_TEST} == PUBLISHED
    for name, split in (("STS18", "test"), ("STS12", "dev")):
        said = refused(tasks_named, ["sts", name], Options(split))
        assert f"unknown task '{name}' " in said and "choose from: sts, " in said


def test_the_average_rounds_each_value_first():
    values = enumerate([70.006, 80.006, 60.006])
    rows = [row(str(i), "test", "spearman", "all", 10 * i, value) for i, value in values]
    averaged = average(rows)
    assert averaged.pop("value") == pytest.approx((70.01 + 80.01 + 60.01) / 3, abs=1e-9)
    plain = {"split": "test", "mode": "test", "metric": "spearman"}
    assert averaged == {**plain, "task": "Avg.", "aggregation": "mean of tasks", "n": 30}


def test_subsets_means_and_pearson_are_reported_beside_the_headline(data_dir):
    task = STS_TEST[0]
    result = task.score(encode, data_dir)
    subsets = task.load(data_dir)
    assert list(subsets) == SUBSETS["STS12"]
    similarity, gold, expected = [], [], {}
    for name, part in subsets.items():
        similarity += similarities(encode, part).tolist()
        gold += part.gold
        expected[f"subset {name}"] = float(spearman(similarities(encode, part), part.gold))
    values, sizes = list(expected.values()), [len(part.gold) for part in subsets.values()]
    expected["mean"] = sum(values) / 5
    expected["wmean"] = sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
    expected["all"] = float(spearman(np.array(similarity), np.array(gold)))
    rows = {(row["metric"], row["aggregation"]): row["value"] for row in result.rows}
    found = {name: rows["spearman", name] for name in expected}
    assert found == pytest.approx(expected, abs=1e-9)
    pearson = 100 * np.corrcoef(similarity, gold)[0, 1]
    assert rows["pearson", "all"] == pytest.approx(pearson, abs=1e-9)
    assert len(rows) == 2 * (1 + 2 + 5)
    assert result.items["gold"].tolist() == gold
    assert result.items["similarity"].tolist() == pytest.approx(similarity)
    metrics = [row["metric"] for row in STS_TEST[5].score(encode, data_dir).rows]
    assert metrics == ["spearman", "pearson"]


def test_distinct_sentences_are_counted_once():
    pairs = Pairs(["a dog", "a cat", "a dog"], ["two dogs", "a cat", "a bird"], [1.0, 5.0, 2.0])
    task = StsTask("own", "test", lambda _: {"": pairs}, None)
    seen = count_seen(iter(["a  dog", "a bird ", "a dog", "a fish"]), [task, object()], ".")
    assert seen == {"own": {"seen": 2, "sentences": 4}}
    assert describe_seen(seen) == "the training text contains test sentences: own 2 of 4"
