import numpy as np
import pytest

from common.errors import BadInput
from eval.metrics.correlation import spearman
from eval.scores import average, row
from eval.sts import STS_DEV, STS_TEST, Pairs, StsTask, merged, own_pairs, similarities
from eval.tasks import Options, count_seen, describe_seen, tasks_named, with_share_seen
from tests.eval.toys import write_stsb
from tests.refusals import refused

PUBLISHED = {
    "STS12": 3108,
    "STS13": 1500,
    "STS14": 3750,
    "STS15": 3000,
    "STS16": 1186,
    "STS-B": 1379,
    "SICK-R": 4927,
}
SUBSETS = {
    "STS12": ["MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"],
    "STS13": ["FNWN", "headlines", "OnWN"],
    "STS14": ["deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"],
    "STS15": ["answers-forums", "answers-students", "belief", "headlines", "images"],
    "STS16": ["answer-answer", "headlines", "plagiarism", "postediting", "question-question"],
}


def score(i):
    return f"{i % 11 / 2:.3f}"


def line(name, i):
    return f"{name} left {i}\t{name} right {i}"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Generated files of the published sizes in SentEval's layout, with unscored pairs."""
    root = tmp_path_factory.mktemp("corpora")
    sts = root / "senteval" / "downstream" / "STS"
    for year, subsets in SUBSETS.items():
        folder = sts / f"{year}-en-test"
        folder.mkdir(parents=True)
        sizes = np.full(len(subsets), PUBLISHED[year] // len(subsets))
        sizes[0] += PUBLISHED[year] - sizes.sum()
        for subset, size in zip(subsets, sizes, strict=True):
            texts = [line(subset, i) for i in range(size)]
            golds = [score(i) for i in range(size)]
            texts[3:3], golds[3:3] = ["never\tscored"] * 2, ["", ""]
            (folder / f"STS.input.{subset}.txt").write_text("\n".join(texts) + "\n")
            (folder / f"STS.gs.{subset}.txt").write_text("\n".join(golds) + "\n")
    for split, size in (("test", 1379), ("dev", 1500)):
        write_stsb(root, [(score(i), *line(split, i).split("\t")) for i in range(size)], split)
    sick = root / "senteval" / "downstream" / "SICK"
    sick.mkdir()
    for file, size in (("SICK_test_annotated.txt", 4927), ("SICK_trial.txt", 500)):
        rows = [f"{i}\t{line(file, i)}\t{1 + i % 5}\tNEUTRAL\n" for i in range(size)]
        header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        (sick / file).write_text(header + "".join(rows))
    return root


def encode(sentences):
    """Left sentences at angle 0, right ones at an angle that mostly falls as the score rises."""
    angles = []
    for sentence in sentences:
        i = int(sentence.split()[-1])
        angles.append(0.0 if " left " in sentence else 2 - i % 11 / 11 + (i % 2) * (i % 7) / 5)
    return np.array([np.cos(angles), np.sin(angles)]).T


@pytest.mark.parametrize(
    "task", [*STS_TEST, *STS_DEV], ids=lambda task: f"{task.name} {task.split}"
)
def test_a_task_reads_its_files_and_gives_a_row(task, data_dir):
    row = task.score(encode, data_dir).rows[0]
    value = row.pop("value")
    assert 0 < abs(value) < 100
    size = (
        PUBLISHED[task.name] if task.split == "test" else {"STS-B": 1500, "SICK-R": 500}[task.name]
    )
    how = {
        "mode": "test",
        "metric": "spearman",
        "aggregation": "all" if task.name in SUBSETS else "single",
    }
    assert row == {"task": task.name, "split": task.split, "n": size} | how


def test_the_subsets_of_a_year_are_concatenated_without_unscored_pairs(data_dir):
    for year, subsets in SUBSETS.items():
        pairs = merged(next(task for task in STS_TEST if task.name == year).load(data_dir))
        assert list(dict.fromkeys(left.split()[0] for left in pairs.left)) == subsets
        assert "never" not in pairs.left
        for left, right, gold in zip(pairs.left, pairs.right, pairs.gold, strict=True):
            assert left.replace(" left ", " right ") == right
            assert f"{gold:.3f}" == score(int(left.split()[-1]))


@pytest.mark.parametrize("count", [2, 4])
def test_another_number_of_pairs_than_the_published_one_is_refused(tmp_path, count):
    pairs = Pairs(["a"] * count, ["b"] * count, [float(i) for i in range(count)])
    task = StsTask("STS99", "test", lambda _: {"": pairs}, 3)
    with pytest.raises(BadInput, match=f"STS99 test in .* has {count} scored pairs instead of 3"):
        task.score(encode, tmp_path)
    assert StsTask("own", "file", lambda _: {"": pairs}, None).load(tmp_path) == {"": pairs}


def test_a_file_of_a_year_that_is_shorter_than_the_other_is_refused(tmp_path):
    folder = tmp_path / "senteval" / "downstream" / "STS" / "STS13-en-test"
    folder.mkdir(parents=True)
    (folder / "STS.input.FNWN.txt").write_text("a\tb\nc\td\n")
    (folder / "STS.gs.FNWN.txt").write_text("1.0\n")
    assert (
        "STS13 in" in (said := refused(STS_TEST[1].load, tmp_path))
        and "truncated or changed" in said
    )


@pytest.mark.parametrize("rows", ["", "a\tb\t3\n", "a\tb\t3\nc\td\t3.0\n"])
def test_own_pairs_of_one_score_are_refused(tmp_path, rows):
    (tmp_path / "own.tsv").write_text(f"sentence1\tsentence2\tscore\n{rows}")
    with pytest.raises(
        BadInput,
        match=f"own has {rows.count('b') + rows.count('d')} pairs of one score; a correlation",
    ):
        own_pairs(str(tmp_path / "own.tsv")).load("nowhere")


def test_tasks_are_chosen_by_group_or_name():
    assert [task.name for task in tasks_named(["sts"], Options())] == list(PUBLISHED)
    assert tasks_named(["sts"], Options("dev")) == list(STS_DEV)
    assert [task.name for task in tasks_named(["sts12", "Sick-R"], Options())] == [
        "STS12",
        "SICK-R",
    ]
    assert tasks_named(["STS-B"], Options("dev")) == [STS_DEV[0]]
    assert tasks_named([], Options()) == []
    names = [task.name for task in tasks_named(["transfer", "MR", "transfer"], Options())]
    assert len(names) == 7 and names.count("MR") == 1
    assert {task.name: task.pairs for task in STS_TEST} == PUBLISHED
    with pytest.raises(
        BadInput,
        match=r"unknown task 'STS18' for split 'test'; choose from: sts, .*STS12, .*SICK-R",
    ):
        tasks_named(["sts", "STS18"], Options())
    with pytest.raises(
        BadInput, match=r"unknown task 'STS12' for split 'dev'; choose from: sts, .*STS-B, SICK-R"
    ):
        tasks_named(["STS12"], Options("dev"))


def test_the_average_rounds_each_value_first():
    values = enumerate([70.006, 80.006, 60.006])
    averaged = average(
        [row(str(i), "test", "spearman", "all", 10 * i, value) for i, value in values]
    )
    assert averaged.pop("value") == pytest.approx((70.01 + 80.01 + 60.01) / 3, abs=1e-9)
    plain = {"split": "test", "mode": "test", "metric": "spearman"}
    assert averaged == {**plain, "task": "Avg.", "aggregation": "mean of tasks", "n": 30}


def test_subsets_means_and_pearson_are_reported_beside_the_headline(data_dir):
    task = STS_TEST[1]
    result = task.score(encode, data_dir)
    subsets = task.load(data_dir)
    values = {
        name: spearman(similarities(encode, pairs), pairs.gold) for name, pairs in subsets.items()
    }
    sizes = [len(pairs.gold) for pairs in subsets.values()]
    rows = {(row["metric"], row["aggregation"]): row for row in result.rows}
    for name, value in values.items():
        assert rows["spearman", f"subset {name}"]["value"] == pytest.approx(value, abs=1e-9)
    assert rows["spearman", "mean"]["value"] == pytest.approx(sum(values.values()) / 3, abs=1e-9)
    weighted = sum(v * n for v, n in zip(values.values(), sizes, strict=True)) / sum(sizes)
    assert rows["spearman", "wmean"]["value"] == pytest.approx(weighted, abs=1e-9)
    pairs = merged(subsets)
    pearson = 100 * np.corrcoef(similarities(encode, pairs), pairs.gold)[0, 1]
    assert rows["pearson", "all"]["value"] == pytest.approx(pearson, abs=1e-9)
    assert len(rows) == 2 * (1 + 2 + 3)
    assert result.items["gold"].tolist() == pairs.gold and len(result.items["similarity"]) == 1500
    assert [row["metric"] for row in STS_TEST[5].score(encode, data_dir).rows] == [
        "spearman",
        "pearson",
    ]


def test_a_score_leaves_nothing_in_the_temporary_folder(data_dir, tmp_path, monkeypatch):
    """Which all users share: a folder of a fixed name there is the first user's."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    STS_TEST[1].score(encode, data_dir)
    assert not [*tmp_path.iterdir()]


PAIRS = {"": Pairs(["a dog", "a cat", "a dog"], ["two dogs", "a cat", "a bird"], [1.0, 5.0, 2.0])}
SEEN = StsTask("own", "test", lambda _: PAIRS, None)


def test_distinct_sentences_are_counted_once():
    seen = count_seen(iter(["a  dog", "a bird ", "a dog", "a fish"]), [SEEN, object()], ".")
    assert seen == {"own": {"seen": 2, "sentences": 4}}
    assert describe_seen(seen) == "the training text contains test sentences: own 2 of 4"
    rows = with_share_seen([{"task": "own", "value": 1.0}, {"task": "Avg.", "value": 1.0}], seen)
    assert rows == [
        {"task": "own", "value": 1.0, "seen_in_training": 0.5},
        {"task": "Avg.", "value": 1.0},
    ]
