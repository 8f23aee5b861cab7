"""Text from Python becomes a file like any other."""

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from pandas import DataFrame

from common.errors import BadInput
from data.given import joined, with_text

ROWS = ["One  sentence.", "Two\nlines\tand a tab", "Drei Sätze: ß"]
LINES = "One  sentence.\nTwo lines and a tab\nDrei Sätze: ß\n"


@pytest.mark.parametrize("container", [list, tuple, iter, lambda rows: Dataset.from_dict({"text": rows})])
def test_sentences_become_one_file_named_by_their_content(container, tmp_path):
    values = [with_text(container(rows), {"cache_dir": tmp_path / "cache"}) for rows in (ROWS, ROWS, ROWS[:2])]
    assert values[0] == values[1] != values[2]
    path = values[0]["train_file"]
    assert path.read_text(encoding="utf-8") == LINES
    assert len([*path.parent.iterdir()]) == 2
    path.write_text("changed")
    with_text(ROWS, {"cache_dir": tmp_path / "cache"})
    assert path.read_text(encoding="utf-8") == LINES


def test_rows_and_columns_of_a_dataset_are_columns(tmp_path):
    values = with_text([("a", "b c"), ("d", "e")], {"cache_dir": tmp_path})
    assert values["columns"] == 2 and values["train_file"].read_text() == "a\tb c\nd\te\n"

    both = Dataset.from_dict({"title": ["x"], "body": ["y"]})
    values = with_text(both, {"cache_dir": tmp_path, "text_column": "body"})
    assert values["train_file"].read_text() == "y\n" and values.keys() == {"cache_dir", "train_file"}
    values = with_text(both, {"cache_dir": tmp_path, "text_column": ["title", "body"]})
    assert values["train_file"].read_text() == "x\ty\n" and values["columns"] == 2
    for wanted in (None, "boddy"):
        with pytest.raises(BadInput, match="text_column: name the text column; choose from title, body"):
            with_text(both, {"cache_dir": tmp_path, "text_column": wanted})


@pytest.mark.parametrize("row", [1.5, float("nan"), None, ("a", 2), {"text": "a"}])
def test_a_value_that_is_not_text_is_refused_with_its_row(row, tmp_path):
    with pytest.raises(BadInput, match="row 1 of the text"):
        with_text(["a", row], {"cache_dir": tmp_path})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "text",
    [{"text": ["a", "b"]}, DatasetDict({"train": Dataset.from_dict({"text": ["a"]})}), DataFrame({"text": ["a"]}), 7],
)
def test_a_text_of_another_kind_is_refused(text, tmp_path):
    with pytest.raises(BadInput, match=rf"text of type {type(text).__name__}: give sentences"):
        with_text(text, {"cache_dir": tmp_path})


def test_a_text_is_given_once(tmp_path):
    for text in (["a dog"], tmp_path / "text.txt"):
        with pytest.raises(BadInput, match="give the text or train_file, not both"):
            with_text(text, {"train_file": "other.txt"})


def test_a_setting_is_given_once():
    assert joined({"model": "a", "method": None}, {"method": "simcse"}) == {"model": "a", "method": "simcse"}
    with pytest.raises(BadInput, match="model: given twice"):
        joined({"model": "a"}, {"model": "b"})


@pytest.mark.parametrize("labels", [["entailment", "neutral", "-"], [0, 2, -1]])
def test_labelled_pairs_get_their_header_and_the_names_of_their_labels(labels, tmp_path):
    premises, hypotheses = ["a", "b", "c\n"], ["d", "e", "f"]
    pairs = list(zip(premises, hypotheses, labels, strict=True))
    if labels[0] == 0:
        classes = ClassLabel(names=["entailment", "contradiction", "neutral"])
        features = Features(premise=Value("string"), hypothesis=Value("string"), label=classes)
        pairs = Dataset.from_dict(dict(zip(features, (premises, hypotheses, labels), strict=True)), features)
    values = with_text(pairs, {"cache_dir": tmp_path}, labelled=True)
    expected = "premise\thypothesis\tlabel\na\td\tentailment\nb\te\tneutral\nc \tf\t-\n"
    assert values["train_file"].read_text() == expected and "columns" not in values


def test_rows_with_a_null_are_dropped_as_in_a_file(tmp_path):
    data = Dataset.from_dict({"text": ["one", None, "two"], "other": ["a", "b", None]})
    for columns, lines in ((None, ["one", "two"]), (["text", "other"], ["one\ta"])):
        values = with_text(data, {"cache_dir": tmp_path, "text_column": columns}, labelled=False)
        assert values["train_file"].read_text().splitlines() == lines
