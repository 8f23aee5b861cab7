import pytest

from common.errors import BadInput
from eval.compare.published import FILE, load, published
from eval.scores import Key

RECORDS = load()
SEVEN = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
AVERAGES = [
    (name, key) for name, record in RECORDS.items() for key in record.scores
    if key.task == "Avg." and all(Key(task, *key[1:]) in record.scores for task in record.averaged[key[1:]])
]  # fmt: skip
COARSER = {
    ("mirror-bert-base", "spearman"): 0.05,  # printed with one decimal
    ("sbert-nli-bert-base", "spearman"): 0.035,  # the printed 74.89 is not the mean of what is printed beside it, 74.86
    ("bert-base-avg", "accuracy"): 0.015,  # the printed 84.94 is not the mean of what is printed beside it, 84.95
}


@pytest.mark.parametrize(("name", "key"), AVERAGES, ids=[f"{name} {key}" for name, key in AVERAGES])
def test_a_published_average_is_the_mean_of_its_tasks(name, key):
    scores, tasks = RECORDS[name].scores, RECORDS[name].averaged[key[1:]]
    mean = sum(scores[Key(task, *key[1:])].mean for task in tasks) / len(tasks)
    assert scores[key].mean == pytest.approx(mean, abs=COARSER.get((name, key.metric), 0.01))


def test_most_of_the_records_have_all_seven_sets():
    assert len([key for _, key in AVERAGES if key.metric == "spearman"]) == 39
    assert len([key for _, key in AVERAGES if key.metric == "accuracy"]) == 8
    assert len([key for _, key in AVERAGES if key.metric == "ndcg@10"]) == 8
    assert RECORDS["infocse-bert-base"].averaged[("test", "test", "spearman")] == set(SEVEN)


@pytest.mark.parametrize("name", RECORDS)
def test_every_figure_has_a_source_and_a_possible_value(name):
    for score in RECORDS[name].scores.values():
        assert score.source
        assert 0 < score.mean <= 100
        assert score.low is None or score.low <= score.mean
        assert score.high is None or score.mean <= score.high


@pytest.mark.parametrize("name", [name for name, record in RECORDS.items() if record.spread])
def test_a_pointer_to_a_spread_ends_at_a_record_with_a_spread_of_the_same_backbone(name):
    spread = RECORDS[RECORDS[name].spread]
    assert spread.backbone == RECORDS[name].backbone
    assert all(score.std is not None and score.runs > 1 for score in spread.scores.values())


def test_the_figures_that_people_quote():
    def value(name, *key):
        return published(name).scores[Key(*key)].mean

    assert value("infocse-bert-base", "Avg.", "test", "test", "spearman") == 78.85
    assert value("infocse-bert-base", "STS-B", "dev", "test", "spearman") == 85.49
    assert value("infocse-bert-base", "MRPC", "test", "test", "accuracy") == 76.58
    assert value("infocse-bert-base", "STS-B retrieval", "test", "test", "recall@1") == 80.41
    assert value("infocse-bert-base", "quora", "test", "test", "ndcg@10") == 82.41
    fifty = published("simcse-bert-base-50-seeds").scores[Key("Avg.", "test", "test", "spearman")]
    assert (fifty.mean, fifty.std, fifty.runs, fifty.low, fifty.high) == (75.11, 0.84, 50, 73.16, 76.70)


def test_an_unknown_id_lists_the_known_ones():
    with pytest.raises(BadInput, match=r"'published:nope' is unknown; choose from: .*infocse-bert-base.*-50-seeds"):
        published("nope")


GOOD = """
average_of: {spearman: [STS12]}
sources: {paper: "table 1"}
records:
- {id: one, backbone: bert, scores: [{source: paper, values: {STS12: 70.0, Avg.: 70.0}}]}
- {id: two, backbone: bert, runs: 5, spread: one, scores: [{source: paper, values: {STS12: {mean: 70, std: 1.5}}}]}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id: two", "id: one", "id 'one' twice"),
        ("{STS12: 70.0,", "{STS12: 71.0, STS12: 70.0,", "key 'STS12' twice"),
        ("runs: 5", "runs: 5, runs: 4", "key 'runs' twice"),
        ("}]}\n- {id: two", "}, {source: paper, values: {STS12: 1}}]}\n- {id: two", "one: STS12 twice"),
        ("runs: 5", "seeds: 5", "unknown key 'seeds'"),
        ("[{source: paper, values: {STS12: 70.0", "[{source: paper, metrics: x, values: {STS12: 70.0", "key 'metrics'"),
        ("std: 1.5", "std: 1.5, sd: 1", "unknown key 'sd'"),
        ("std: 1.5", "max: 75", "key 'std' is missing"),
        ("backbone: bert, scores", "scores", "key 'backbone' is missing"),
        ("[{source: paper, values: {STS12: 70.0", "[{values: {STS12: 70.0", "key 'source' is missing"),
        ("sources:", "source:", "key 'sources' is missing"),
        ("[{source: paper, values: {STS12: 70.0", "[{source: other, values: {STS12: 70.0", "source 'other'"),
        ("spread: one", "spread: none", "spread 'none' is no record"),
        ("STS12: 70.0", "STS12: seventy", "'seventy', which is no number"),
        ("STS12: 70.0", "STS12: .nan", "'nan', which is no number"),
        ("runs: 5", "runs: five", "runs is five"),
        ("runs: 5", "runs: 1", "standard deviation but its record one run"),
        ("{spearman: [STS12]}", "{}", "average_of does not say"),
        ("records:", "records: [", "not a YAML file"),
        ("STS12: 70.0", "STS12: !!python/name:os.system", "not a YAML file"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, old, new, said):
    path = tmp_path / "published.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert len(load(path)) == 2
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        load(path)
    assert said in str(caught.value) and str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path / FILE.name)
