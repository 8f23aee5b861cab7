"""Labelled pairs: what is read, what is counted, what is refused."""

import pytest

from common.errors import BadInput
from common.views import View
from data.collator import Collator
from data.corpus import load_corpus
from data.labelled import LabelledReader
from data.reader import Reader

HEADER = "premise\thypothesis\tlabel\n"
ROWS = "a dog runs\ta dog moves\tentailment\n\na dog runs\ta dog sleeps\tcontradiction\n"


@pytest.fixture
def written(tmp_path):
    def write(text, name="pairs.tsv"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_rows_labels_and_what_was_left_out(written, bert_tokenizer, tmp_path):
    first = written(HEADER + ROWS + "a dog runs\ta river\t-\n")
    second = written(HEADER + "a river\ta dog\tneutral\n", "more.tsv")
    corpus = load_corpus([first, second], bert_tokenizer, None, tmp_path / "cache")
    assert corpus.labels.tolist() == [1, 0, 2]
    assert corpus.columns == 2 and len(corpus) == 3
    assert (corpus.facts["undecided_rows_dropped"], corpus.facts["empty_lines_dropped"]) == (1, 1)
    assert corpus.facts["labels"] == ["contradiction", "entailment", "neutral"]
    batch = Collator(corpus, bert_tokenizer, [View(), View()], 32, 0)([(0, 2, 0), (0, 0, 0)])
    assert batch["labels"].tolist() == [[2, 1]]
    texts = bert_tokenizer.batch_decode(batch["input_ids"].flatten(0, 1), skip_special_tokens=True)
    assert texts == ["a river", "a dog runs", "a dog", "a dog moves"]


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "an unknown label": (HEADER + ROWS + "a dog\ta river\tmaybe\n", ":5: label 'maybe' is not one of"),
        "another header": ("sentence1\tsentence2\tlabel\n" + ROWS, ":1: the header is not `premise"),
        "no header": (ROWS, ":1: the header is not"),
        "a missing column": (HEADER + "a dog\tentailment\n", ":2: 2 tab-separated columns, expected 3"),
        "an empty hypothesis": (HEADER + "a dog\t\tneutral\n", ":2: column 2 is empty"),
        "no rows": (HEADER, "holds no sentence"),
        "Latin-1": (HEADER.encode() + b"caf\xe9\ta dog\tneutral\n", ":2: byte 4 is not UTF-8"),
    }.values(),
)
def test_a_bad_file_is_one_clear_error(written, bert_tokenizer, tmp_path, text, said):
    with pytest.raises(BadInput) as caught:
        load_corpus([written(text)], bert_tokenizer, None, tmp_path / "cache")
    assert said in str(caught.value) and "pairs.tsv" in str(caught.value) and "\n" not in str(caught.value)


def test_an_empty_line_is_no_header(tmp_path):
    path = tmp_path / "nli.tsv"
    path.write_text("\n\nA man sleeps.\tA man rests.\tentailment\n")
    with pytest.raises(BadInput, match=":3: the header is not `premise hypothesis label`"):
        list(LabelledReader([path]))
    path.write_text("\npremise\thypothesis\tlabel\nA man sleeps.\tA man rests.\tentailment\n")
    reader = LabelledReader([path, path])
    assert len(list(reader)) == 2 and reader.empty_lines == 2


def test_labelled_pairs_are_no_rows_of_three_sentences(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(HEADER + ROWS)
    with pytest.raises(BadInput, match=r"pairs\.tsv:1: the header of labelled pairs.*run_sup\.py"):
        list(Reader([path], 3))
