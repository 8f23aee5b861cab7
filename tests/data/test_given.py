"""Text from Python becomes a file like any other."""

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from pandas import DataFrame

from common.arguments import ScoredArguments, SentenceArguments
from common.errors import BadInput
from data.given import with_text
from data.source import source_of
from data.text import read_text
from tests.refusals import refused

ROWS = ["One  sentence.", "Two\nlines\tand a tab", "Drei Sätze: ß"]
LINES = "One  sentence.\nTwo lines and a tab\nDrei Sätze: ß\n"


@pytest.mark.parametrize("container", [list, iter])
def test_sentences_become_one_file_named_by_their_content(container, tmp_path):
    cache = {"cache_dir": tmp_path / "cache"}
    values = [with_text(container(rows), cache) for rows in (ROWS, ROWS, ROWS[:2])]
    assert values[0] == values[1] != values[2]
    path = values[0]["train_file"]
    assert path.read_text(encoding="utf-8") == LINES
    assert len([*path.parent.iterdir()]) == 2
    path.write_text("changed")
    with_text(ROWS, {"cache_dir": tmp_path / "cache"})
    assert path.read_text(encoding="utf-8") == LINES


def test_rows_are_columns_and_labelled_pairs_get_their_header(tmp_path):
    values = with_text([("a", "b c"), ("d", "e")], {"cache_dir": tmp_path})
    assert values["columns"] == 2 and values["train_file"].read_text() == "a\tb c\nd\te\n"
    pairs = [("a", "d", "entailment"), ("c\n", "f", "-")]
    values = with_text(pairs, {"cache_dir": tmp_path}, labelled=True)
    expected = "premise\thypothesis\tlabel\na\td\tentailment\nc \tf\t-\n"
    assert values["train_file"].read_text() == expected and "columns" not in values


def read(data, tmp_path, **settings):
    """The rows of a Dataset that a run with these settings trains on."""
    cache = {"cache_dir": str(tmp_path)}
    values = with_text(data, cache | settings)
    assert values == with_text(data, cache | settings), "the same text has the same file"
    labelled = "label" in data.column_names
    values["train_file"] = [str(values["train_file"])]
    source = source_of((ScoredArguments if labelled else SentenceArguments)(**values), labelled)
    return [tuple(row.values()) for row in read_text(source, tmp_path).rows]


def test_a_dataset_is_read_as_a_file_of_its_columns_is(tmp_path):
    data = Dataset.from_dict({"text": ["one", None, "two"], "other": ["a", "b", None]})
    assert read(data, tmp_path) == [("one",), ("two",)]
    assert read(data.select([2, 0]), tmp_path, text_column=["other", "text"]) == [("a", "one")]
    refused(read, Dataset.from_dict({"title": ["x"]}), tmp_path, match="no column 'text'")
    classes = ClassLabel(names=["entailment", "contradiction", "neutral"])
    features = Features(premise=Value("string"), hypothesis=Value("string"), label=classes)
    pairs = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [0, 2, -1]}
    assert read(Dataset.from_dict(pairs, features), tmp_path) == [("a", "d", 1), ("b", "e", 2)]


NO_TEXT = (1.5, float("nan"), None, ("a", 2), {"text": "a"})
BAD = [(["a", row], "row 1 of the text") for row in (*NO_TEXT, "\ud800")]
SPLITS = DatasetDict({"train": Dataset.from_dict({"text": ["a"]})})
for kind in ({"text": ["a", "b"]}, SPLITS, DataFrame({"text": ["a"]}), 7):
    BAD.append((kind, f"text of type {type(kind).__name__}: give sentences"))


@pytest.mark.parametrize(("text", "said"), BAD)
def test_what_is_not_text_is_refused(text, said, tmp_path):
    refused(with_text, text, {"cache_dir": tmp_path}, match=said)
    assert not [*tmp_path.iterdir()]


def test_the_cache_is_a_folder_s_name_and_a_text_is_given_once(tmp_path):
    refused(with_text, ["a"], {"cache_dir": 3}, match="--cache_dir 3: must be text or")
    for text in (["a dog"], tmp_path / "text.txt"):
        with pytest.raises(BadInput, match="give the text or train_file, not both"):
            with_text(text, {"train_file": "other.txt"})
