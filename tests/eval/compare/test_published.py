"""The published numbers: averages add up, and the figures people quote are right."""

import math

import pytest

from common.files import read_yaml
from eval.compare.sides import PUBLISHED, records
from eval.scores import Key
from tests.sources import check_entry

CONTENT, RECORDS = read_yaml(PUBLISHED), records()
AVERAGES = [
    (name, key)
    for name, record in RECORDS.items()
    for key in record.scores
    if key.task == "Avg."
    and all(Key(task, *key[1:]) in record.scores for task in record.averaged[key[1:]])
]
COARSER = {  # what is printed is not the mean of what is printed beside it
    ("mirror-bert-base", "spearman"): 0.05,  # one decimal
    ("sbert-nli-bert-base", "spearman"): 0.035,  # 74.89, mean 74.86
    ("bert-base-avg", "accuracy"): 0.015,  # 84.94, mean 84.95
    ("promptbert-bert-base", "spearman"): 0.02,  # 78.54, mean 78.52
}


def test_no_id_occurs_twice_and_every_source_is_used():
    check_entry(CONTENT, {"average_of": dict, "sources": dict, "records": list})
    assert {type(task) for tasks in CONTENT["average_of"].values() for task in tasks} == {str}
    assert len(CONTENT["records"]) == len(RECORDS)
    used = {block["source"] for record in CONTENT["records"] for block in record["scores"]}
    assert used == set(CONTENT["sources"])


@pytest.mark.parametrize("record", CONTENT["records"], ids=lambda record: record["id"])
def test_a_record_is_well_formed(record):
    needed, more = {"id": str, "backbone": str, "scores": list}, {"runs": int}
    check_entry(record, needed, more | {"spread": str, "note": str})
    figures = []
    for block in record["scores"]:
        check_entry(block, {"source": str, "values": dict}, {"split": str, "metric": str, "n": int})
        figures += block["values"].values()
    assert len(figures) == len(RECORDS[record["id"]].scores), "no figure twice"
    number = (int, float)
    for value in figures:
        single = not isinstance(value, dict)
        entry = {"mean": value, "std": 0} if single else value
        check_entry(entry, {"mean": number, "std": number}, {"min": number, "max": number})
        assert all(map(math.isfinite, entry.values())) and (single or record["runs"] > 1)
    side = RECORDS[record["id"]]
    assert all(key[1:] in side.averaged for key in side.scores if key.task == "Avg.")
    assert side.spread is None or side.spread in RECORDS
    for key, score in side.scores.items():
        most = 1e6 if key.metric == "steps" else 100
        assert type(score.source) is str and 0 < score.mean <= most
        assert (score.low or 0) <= score.mean <= (score.high or most)


@pytest.mark.parametrize(("name", "key"), AVERAGES, ids=[f"{name} {key}" for name, key in AVERAGES])
def test_a_published_average_is_the_mean_of_its_tasks(name, key):
    scores, tasks = RECORDS[name].scores, RECORDS[name].averaged[key[1:]]
    mean = sum(scores[Key(task, *key[1:])].mean for task in tasks) / len(tasks)
    assert scores[key].mean == pytest.approx(mean, abs=COARSER.get((name, key.metric), 0.01))


@pytest.mark.parametrize("name", [name for name, record in RECORDS.items() if record.spread])
def test_a_pointer_to_a_spread_ends_at_a_record_with_a_spread_of_the_same_backbone(name):
    spread = RECORDS[RECORDS[name].spread]
    assert spread.backbone == RECORDS[name].backbone
    assert all(score.std is not None and score.runs > 1 for score in spread.scores.values())
