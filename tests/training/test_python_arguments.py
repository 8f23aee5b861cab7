"""Settings and text from Python as the command line has them."""

from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from pandas import DataFrame
from transformers import SchedulerType

from common.errors import BadInput
from training.python_arguments import as_flags, joined

ROWS = ["One  sentence.", "Two\nlines\tand a tab", "Drei Sätze: ß"]
LINES = "One  sentence.\nTwo lines and a tab\nDrei Sätze: ß\n"


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda rows: Dataset.from_dict({"text": rows})])
def test_sentences_become_one_file_named_by_their_content(kind, tmp_path):
    flags = [as_flags(kind(rows), {"cache_dir": tmp_path / "cache"}) for rows in (ROWS, ROWS, ROWS[:2])]
    assert flags[0] == flags[1] != flags[2]
    path = Path(dict(word[2:].split("=") for word in flags[0])["train_file"])
    assert path.read_text(encoding="utf-8") == LINES
    assert len([*path.parent.iterdir()]) == 2
    path.write_text("changed")
    as_flags(ROWS, {"cache_dir": tmp_path / "cache"})
    assert path.read_text(encoding="utf-8") == LINES


def test_rows_and_columns_of_a_dataset_are_columns(tmp_path):
    *_, file, columns = as_flags([("a", "b c"), ("d", "e")], {"cache_dir": tmp_path})
    assert columns == "--columns=2" and Path(file.split("=")[1]).read_text() == "a\tb c\nd\te\n"

    both = Dataset.from_dict({"title": ["x"], "body": ["y"]})
    *_, file = as_flags(both, {"cache_dir": tmp_path, "text_column": "body"})
    assert Path(file.split("=")[1]).read_text() == "y\n"
    *_, file, columns = as_flags(both, {"cache_dir": tmp_path, "text_column": ["title", "body"]})
    assert Path(file.split("=")[1]).read_text() == "x\ty\n" and columns == "--columns=2"
    for wanted in (None, "boddy"):
        with pytest.raises(BadInput, match="text_column: name the text column; choose from title, body"):
            as_flags(both, {"cache_dir": tmp_path, "text_column": wanted})


@pytest.mark.parametrize("row", [1.5, float("nan"), None, ("a", 2), {"text": "a"}])
def test_a_value_that_is_not_text_is_refused_with_its_row(row, tmp_path):
    with pytest.raises(BadInput, match="row 1 of the text"):
        as_flags(["a", row], {"cache_dir": tmp_path})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "text",
    [{"text": ["a", "b"]}, DatasetDict({"train": Dataset.from_dict({"text": ["a"]})}), DataFrame({"text": ["a"]}), 7],
)
def test_a_text_of_another_kind_is_refused(text, tmp_path):
    with pytest.raises(BadInput, match=rf"text of type {type(text).__name__}: give sentences"):
        as_flags(text, {"cache_dir": tmp_path})


def test_half_a_surrogate_pair_is_refused_with_its_row(tmp_path):
    with pytest.raises(BadInput, match="row 1 of the text: has half a surrogate pair"):
        as_flags(["a", "b\ud800"], {"cache_dir": tmp_path})


def test_a_text_is_given_once(tmp_path):
    for text in (["a dog"], tmp_path / "text.txt"):
        with pytest.raises(BadInput, match="give the text or train_file, not both"):
            as_flags(text, {"train_file": "other.txt"})


def test_a_setting_is_given_once():
    assert joined({"model": "a", "method": None}, {"method": "simcse"}) == {"model": "a", "method": "simcse"}
    with pytest.raises(BadInput, match="model: given twice"):
        joined({"model": "a"}, {"model": "b"})


def test_values_are_words(tmp_path):
    given = {"seed": 7, "learning_rate": 3e-5, "bf16": False, "dev_file": None, "test_tasks": ["STS12", "MR"],
             "lr_scheduler_type": SchedulerType.COSINE, "lr_scheduler_kwargs": {"num_cycles": 2},
             "output_dir": tmp_path}  # fmt: skip
    assert as_flags("my.txt", given) == [
        "--seed=7", "--learning_rate=3e-05", "--bf16=false", "--test_tasks", "STS12", "MR",
        "--lr_scheduler_type=cosine", '--lr_scheduler_kwargs={"num_cycles": 2}', f"--output_dir={tmp_path}",
        "--train_file=my.txt",
    ]  # fmt: skip


@pytest.mark.parametrize("labels", [["entailment", "neutral", "-"], [0, 2, -1]])
def test_labelled_pairs_get_their_header_and_the_names_of_their_labels(labels, tmp_path):
    premises, hypotheses = ["a", "b", "c\n"], ["d", "e", "f"]
    pairs = list(zip(premises, hypotheses, labels, strict=True))
    if labels[0] == 0:
        features = Features(premise=Value("string"), hypothesis=Value("string"),
                            label=ClassLabel(names=["entailment", "contradiction", "neutral"]))  # fmt: skip
        pairs = Dataset.from_dict(dict(zip(features, (premises, hypotheses, labels), strict=True)), features)
    _, *files = as_flags(pairs, {"cache_dir": tmp_path}, labelled=True)
    assert [Path(file.split("=")[1]).read_text() for file in files] == [
        "premise\thypothesis\tlabel\na\td\tentailment\nb\te\tneutral\nc \tf\t-\n"
    ]
    with pytest.raises(BadInput, match="no column hypo among"):
        as_flags(Dataset.from_dict({"label": ["neutral"]}), {"text_column": "hypo"}, labelled=True)
    with pytest.raises(BadInput, match="no column label among text"):
        as_flags(Dataset.from_dict({"text": ["a"]}), {"text_column": ["text", "text"]}, labelled=True)


def test_rows_with_a_null_are_dropped_as_in_a_file(tmp_path):
    data = Dataset.from_dict({"text": ["one", None, "two"], "other": ["a", "b", None]})
    for columns, lines in ((None, ["one", "two"]), (["text", "other"], ["one\ta"])):
        flags = as_flags(data, {"cache_dir": tmp_path, "text_column": columns})
        [file] = [flag.partition("=")[2] for flag in flags if flag.startswith("--train_file")]
        assert Path(file).read_text().splitlines() == lines
