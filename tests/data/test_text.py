"""Training text of every format gives the same rows, or one line that says what is wrong."""

import csv
import gzip
import json
import re

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from pandas import DataFrame

import data.text
from common.arguments import ScoredArguments, SentenceArguments
from data.collator import Collator
from data.lines import LONGEST
from data.source import Source, source_of
from data.text import read_text
from data.tokenised import load_tokenised
from data.views import View
from tests.data.conftest import written
from tests.refusals import refused

TEXTS = ["A dog runs, fast.", 'He said "no".', "Zwölf Boxkämpfer 🙂", "007", "None", "nan", "last"]
HEADER = "premise\thypothesis\tlabel\n"
PAIRS = "a dog runs\ta dog moves\tentailment\n\na dog runs\ta dog sleeps\tcontradiction\n"


def read(folder, *paths, **how):
    return read_text(Source(paths, **how), folder / "cache")


def rows(folder, *paths, **how):
    text = read(folder, *paths, **how)
    return list(zip(*(text.rows[name] for name in text.rows.column_names), strict=True))


def refusal(folder, *paths, **how):
    message = refused(read, folder, *paths, **how)
    assert not [*(folder / "cache").glob("[!.]*")], "nothing is left in the cache"
    return message


def in_arrow(table, write):
    sink = pa.BufferOutputStream()
    write(table, sink)
    return sink.getvalue().to_pybytes()


def stream(table, sink):
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def parquet_of(columns):
    return in_arrow(pa.table(columns), pa.parquet.write_table)


BUFFERS = [*pa.array(["ab"]).buffers()[:2], pa.py_buffer(b"\xff\xfe")]
NOT_UTF_8 = pa.Array.from_buffers(pa.string(), 1, BUFFERS)
TABLE = DataFrame({"id": range(len(TEXTS)), "text": TEXTS, "title": ["", *"abcdef"]})
BEIR = TABLE.rename(columns={"id": "_id"}).assign(metadata=[{"n": 1}, {}] * 3 + [{}])
FORMATS = {
    "csv": TABLE.to_csv(index=False),
    "tsv": TABLE.to_csv(index=False, sep="\t", quoting=csv.QUOTE_NONE),
    "jsonl": TABLE.to_json(orient="records", lines=True),
    "json": TABLE.to_json(orient="records", indent=1),
    "parquet": in_arrow(pa.Table.from_pandas(TABLE), pa.parquet.write_table),
    "arrow": in_arrow(pa.Table.from_pandas(TABLE), stream),
    "corpus.jsonl": BEIR.to_json(orient="records", lines=True),
}


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_batches_of_plain_lines(tmp_path, bert_tokenizer, suffix):
    def batch(path, **how):
        text = load_tokenised(Source((path,), **how), bert_tokenizer, tmp_path / "cache")
        collate = Collator(text, bert_tokenizer, [View(), View()], 32, 0)
        return text, collate([(0, i, 0) for i in (3, 1, 0, 6)])["input_ids"].tolist()

    plain, expected = batch(written(tmp_path, "\n\n".join(TEXTS)))
    path = written(tmp_path, FORMATS[suffix], f"in.{suffix}")
    text, made = batch(path, names=("text",))
    assert made == expected and len(text) == len(plain) == len(TEXTS)
    titled, _ = batch(path, names=("title", "text"), titled=True)
    assert titled.columns == 2 and titled.lengths([0, 1], 0).tolist() == [0, 1]
    assert titled.sentences([2, 4], 1, 9)[0].tolist() == plain.sentences([2, 4], 0, 9)[0].tolist()


def test_the_first_bytes_tell_the_packing_and_names_are_no_patterns(tmp_path):
    (tmp_path / "a[1]*").mkdir()
    pack = zstandard.ZstdCompressor().compress
    path = written(tmp_path / "a[1]*", pack(b"one\n") + pack(b"two\n"), "b::c?.txt")
    other = written(tmp_path, b"\xef\xbb\xbfthree\r\n", "dataset_infos.json.gz.txt")
    assert rows(tmp_path / "a[1]*", path, other) == [("one",), ("two",), ("three",)]


def test_lines_are_stripped_and_empty_ones_counted(tmp_path):
    text = read(tmp_path, written(tmp_path, "\ufeff one\u2028two \n\n  \t \r\n a\u00a0\n"))
    assert text.rows["0"][:] == ["one\u2028two", "a"] and list(text.cells([1])) == ["a"]
    facts = {"columns": 1, "rows": 2, "empty_lines_dropped": 2}
    assert text.facts.items() >= facts.items()


def test_rows_of_several_sentences(tmp_path):
    path = written(tmp_path, "a b\tc\r\n\nd\t e \n")
    assert rows(tmp_path, path, columns=2) == [("a b", "c"), ("d", "e")]
    path = written(tmp_path, "sent0,hard_neg,sent1\na,c,b\n,x,\nd,f,e\n", "nli.csv")
    text = read(tmp_path, path, names=("sent0", "sent1", "hard_neg"))
    assert list(text.cells()) == [*"abcdef"] and text.facts["empty_lines_dropped"] == 1
    flags = {"train_file": [str(path)], "text_column": ["sent0", "sent1", "hard_neg"], "columns": 3}
    assert source_of(SentenceArguments(**flags)).width == 3


def test_labelled_pairs_of_lines_and_of_tables(bert_tokenizer, tmp_path):
    first = written(tmp_path, f"{HEADER}{PAIRS}a dog runs\ta river\t-\n", "pairs.tsv")
    second = written(tmp_path, f"\n{HEADER}a river\ta dog\tneutral\n", "more.tsv")
    source = Source((first, second), labelled=True)
    corpus = load_tokenised(source, bert_tokenizer, tmp_path / "cache")
    assert corpus.labels.tolist() == [1, 0, 2] and (corpus.columns, len(corpus)) == (2, 3)
    assert (corpus.facts["undecided_rows_dropped"], corpus.facts["empty_lines_dropped"]) == (1, 2)
    assert corpus.facts["labels"] == ["contradiction", "entailment", "neutral"]
    batch = Collator(corpus, bert_tokenizer, [View(), View()], 32, 0)([(0, 2, 0), (0, 0, 0)])
    assert batch["labels"].tolist() == [[2, 1]]
    texts = bert_tokenizer.batch_decode(batch["input_ids"].flatten(0, 1), skip_special_tokens=True)
    assert texts == ["a river", "a dog runs", "a dog", "a dog moves"]
    # As in SNLI on the hub, but with the label first.
    classes = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    text = datasets.Value("string")
    features = datasets.Features({"label": classes, "premise": text, "hypothesis": text})
    pairs = {"label": [0, 2, -1, 1], "premise": [*"abcd"], "hypothesis": [*"efgh"]}
    datasets.Dataset.from_dict(pairs, features).to_parquet(tmp_path / "pairs.parquet")
    read_rows = rows(tmp_path, tmp_path / "pairs.parquet", labelled=True)
    assert read_rows == [("a", "e", 1), ("b", "f", 0), ("d", "h", 2)]
    snli = pa.table({"gold_label": ["neutral", "-"], "sentence1": [*"xy"], "sentence2": [*"zz"]})
    pa.parquet.write_table(snli, tmp_path / "snli.parquet")
    names = ["sentence1", "sentence2", "gold_label"]
    args = ScoredArguments(train_file=[str(tmp_path / "snli.parquet")], text_column=names)
    [row] = read_text(source_of(args, labelled=True), tmp_path / "cache").rows
    assert row == {"0": "x", "1": "z", "label": 2}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", "good\nZwölf\n".encode("latin-1"), ":2: 'utf-8' codec"),
        ("x.txt", "a\n\nb\tc\n", ":3: 2 columns, expected 1"),
        ("x.txt", "\n \r\n\t\n", ": contains no sentences"),
        ("x.txt", '{"text": "a"}\n' * 3, ": a table, not one text per line"),
        ("x.csv", "a,b\n1,2\n", ": no column 'text' (see --text_column) among a, b"),
        ("x.csv", "a,text\n1,b\n2,c,d\n", ":3: 3 columns, expected 2"),  # an unquoted comma
        ("x.csv", 'a,text\n1,"b\n2,c\n', ":3: not CSV"),  # an open quote
        ("x.jsonl", '{"text": "a"}\n\n{"text": 5}\n', ":3: a cell is of type int, not text"),
        ("x.jsonl", '{"text": "\\ud83d"}\n', ":1: 'utf-8' codec can't encode"),  # half a pair
        ("x.json", '{"a":' * 100_000 + "1" + "}" * 100_000, ":1: not JSON"),
        ("x.parquet", parquet_of({"text": NOT_UTF_8}), ": cannot be read as parquet"),
    ],
)
def test_a_bad_text_is_one_error_with_its_file_and_line(tmp_path, name, content, said):
    path = written(tmp_path, content, name)
    assert refusal(tmp_path, path).startswith(f"{path}{said}")


def test_an_unknown_label_is_refused_with_its_line(tmp_path):
    path = written(tmp_path, f"{HEADER}{PAIRS}a\tb\tmaybe\n")
    assert refusal(tmp_path, path, labelled=True).startswith(f"{path}:5: label 'maybe'")


@pytest.mark.parametrize(
    "lines",
    [
        ["Red, green, blue", "one,two,three"],
        ['"I came, I saw", he said.', '"No," she said.', '"Why?"', 'He said "yes, no", and left.'],
        ["{a} is a set", "{not json}", '{"half":', "[1, 2]", '"text"', "12"],
        ['{"a":' * 5000],
    ],
)
def test_prose_is_read(tmp_path, lines):
    path = written(tmp_path, "\n".join(lines * 9), "notes.csv.txt")
    assert rows(tmp_path, path) == [(line,) for line in lines * 9]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "give either --train_file, the text to train on, or --dataset_name"),
        ({"train_file": ["t.txt"], "dataset_name": ["a/b"]}, "give either --train_file"),
        ({"train_file": ["t.csv"], "columns": 2}, "--columns 2: only for lines without a header"),
        ({"dataset_name": ["a/b", "default", "train[:9]"]}, "--dataset_name a/b default train[:9]"),
        ({"dataset_name": ["no/such"]}, "--dataset_name no/such: cannot"),
    ],
)
def test_flags_that_would_read_another_text_are_refused(tmp_path, monkeypatch, flags, said):
    monkeypatch.chdir(tmp_path)
    for name in ("t.txt", "t.csv"):
        written(tmp_path, "a\n", name)
    assert refused(source_of, SentenceArguments(**flags, cache_dir="cache")).startswith(said)


def test_columns_of_json_that_nobody_reads_may_be_anything(tmp_path):
    dates = [f"2024-01-0{n % 9 + 1}" for n in range(4000)]  # over 10 MB
    wide = [{"text": day, "url": None, "id": 1, "x": "y" * 3000} for day in dates]
    late = [{"text": "a", "url": "http", "id": "x1", "title": "b"}, {"id": [2], "text": None}]
    lines = written(tmp_path, "".join(json.dumps(row) + "\n" for row in wide + late), "wide.jsonl")
    content = b"\xef\xbb\xbf" + json.dumps([{"text": "c", "extra": {}}, "d"]).encode()
    text = read(tmp_path, lines, written(tmp_path, content, "b.json"), names=("text",))
    assert text.rows["0"][:] == [*dates, *"acd"] and text.facts["empty_lines_dropped"] == 1
    source = Source((lines,), names=("title", "text"), titled=True)
    assert read_text(source, tmp_path / "cache").rows[-1] == {"0": "b", "1": "a"}
    other = written(tmp_path, '{"body": "a"}\n', "other.jsonl")
    assert f"{other}: no column 'text'" in refused(read, tmp_path, lines, other, names=("text",))


def test_a_dataset_of_the_library_gives_the_rows_of_a_split(tmp_path):
    """A local one, by the path that a data set of the hub takes too."""
    made = tmp_path / "made"
    made.mkdir()
    lines = '{"text": "a dog", "title": ""}', '{"text": "a river", "title": "b"}'
    written(made, "\n".join(lines), "train.jsonl")
    written(made, '{"text": "c"}\n', "test.jsonl")

    def of(*more, **flags):
        flags |= {"dataset_name": [str(made), *more], "cache_dir": str(tmp_path / "cache")}
        source = source_of(SentenceArguments(**flags))
        assert source.file_names == [str(made)]
        return read_text(source, tmp_path / "cache").rows[:]

    assert of() == {"0": ["a dog", "a river"]} and of("default", "test") == {"0": ["c"]}
    assert of(text_column=["text", "title"]) == {"0": ["a river"], "1": ["b"]}
    said = "cannot be loaded|a split at most"
    for more in (["default", "no"], ["no"], ["default", "train", "x"]):
        assert re.search(said, refused(of, *more))
    assert "no column 'body'" in refused(of, text_column=["body"])


@pytest.mark.parametrize("name", ["x.csv.gz", "x.jsonl.gz"])
def test_a_small_packed_table_does_not_fill_the_memory(tmp_path, monkeypatch, name):
    content = b'text\n"' + b"a" * 1000 if "csv" in name else b'{"b": "' + b"b" * 1000
    path = written(tmp_path, gzip.compress(content), name)
    monkeypatch.setattr(data.text, "_LONGEST_ROW", 900)
    assert "line longer than 900 bytes" in refusal(tmp_path, path)


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_a_cell_is_as_long_as_a_line_may_be(tmp_path, name):
    longest = "a" * LONGEST
    for long in (longest, longest + "a"):
        content = {
            "x.csv": f"text\nb\n{long}\n",
            "x.jsonl": f'{{"text": "b"}}\n{{"text": "{long}"}}\n',
            "x.parquet": parquet_of({"text": pa.array(["b", long]).dictionary_encode()}),
        }
        path = written(tmp_path, content[name], name)
        if long == longest:
            assert rows(tmp_path, path) == [("b",), (longest,)]
    assert re.search("1,000,000 bytes|field limit", refused(read, tmp_path, path))


def test_a_small_table_of_a_long_cell_is_refused_before_it_is_expanded(tmp_path):
    content = parquet_of({"text": ["a" * (LONGEST + 1)] * 90})
    path = written(tmp_path, content, "x.parquet")
    assert len(content) < 200_000
    before = pa.default_memory_pool().max_memory()
    assert "column 'text' has a cell of more than 1,000,000 bytes" in refusal(tmp_path, path)
    assert pa.default_memory_pool().max_memory() < before + 50 * LONGEST


def test_an_arrow_file_with_a_damaged_offset_is_refused(tmp_path):
    """Read without a check, it ends the process."""
    table = pa.table({"text": ["one", "two", "three"]})
    path = written(tmp_path, in_arrow(table, stream), "x.arrow")
    offsets = np.array([0, 3, 6, 11], dtype=np.int32).tobytes()
    damaged = np.array([0, 3, 6 + 2**30, 11], dtype=np.int32).tobytes()
    assert path.read_bytes().count(offsets) == 1
    path.write_bytes(path.read_bytes().replace(offsets, damaged))
    assert refusal(tmp_path, path).startswith(f"{path}: cannot be read as arrow")


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl"])
def test_a_text_that_changes_while_it_is_read_is_not_cached(tmp_path, monkeypatch, name):
    line = '{"text": "a"}\n' if name == "x.jsonl" else "a\n"
    path = written(tmp_path, line * 5, name)
    write = data.text.write_rows

    def appended(*args):
        with path.open("a") as file:
            file.write(line)
        write(*args)

    monkeypatch.setattr(data.text, "write_rows", appended)
    assert refusal(tmp_path, path) == f"{path}: changed while it was read; run the command again"
