"""Tables and records that would pass as lines of text are refused, and prose is not."""

import csv
import gzip
import io
import json
import lzma
import subprocess
import sys

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import zstandard

from common.errors import BadInput
from data.text import LabelledReader, Reader
from data.tokenised import load_tokenised

TEXTS = ["A dog runs, fast.", 'He said "no".', "Zwölf Boxkämpfer", "two\nlines", "one", "last"]
ONE_LINE = [" ".join(text.split()) for text in TEXTS]
PACKED = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
ROWS = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]


def as_csv(quoting=csv.QUOTE_MINIMAL):
    sink = io.StringIO()
    writer = csv.DictWriter(sink, ["id", "text"], quoting=quoting, lineterminator="\n")
    writer.writeheader()
    writer.writerows(ROWS)
    return sink.getvalue().encode()


def as_arrow(write):
    sink = pa.BufferOutputStream()
    write(pa.table({"id": range(len(TEXTS)), "text": TEXTS}), sink)
    return sink.getvalue().to_pybytes()


def stream(table, sink):
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CONTENT = {
    "csv": as_csv(),
    "jsonl": LINES,
    "ndjson": LINES,
    "json": json.dumps(ROWS, indent=1).encode(),
    "parquet": as_arrow(pa.parquet.write_table),
    "feather": as_arrow(lambda table, sink: pa.feather.write_feather(table, sink, compression="uncompressed")),
    "arrow": as_arrow(stream),
}


def refused(path, columns=1):
    for reader in (lambda: Reader([path], columns), lambda: LabelledReader([path])):
        with pytest.raises(BadInput) as caught:
            list(reader())
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", CONTENT)
def test_a_file_of_another_format_is_refused_with_a_command_that_works(tmp_path, kind):
    path = tmp_path / f"my text.{kind}"
    path.write_bytes(CONTENT[kind])
    said = refused(path)
    assert said.startswith(f"{path}: ") and " by its name, not one sentence a line; extract a column" in said
    command = said.partition("(replace 'text' by its name): ")[2].replace("python -c", f"{sys.executable} -c")
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True)
    assert [row for (row,) in Reader([tmp_path / "sentences.txt"])] == ONE_LINE


@pytest.mark.parametrize("kind", CONTENT)
@pytest.mark.parametrize("packed", [".gz", ".xz", ".zst", ".GZ"])
def test_compressed_ones_too_by_name(tmp_path, kind, packed):
    path = tmp_path / f"text.{kind}{packed}"
    path.write_bytes(b"a sentence\n")
    assert {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}[packed.lower()] + f" -dc {path} | python" in refused(path)


def test_a_name_is_refused_though_its_content_is_cached(tmp_path, bert_tokenizer):
    path = tmp_path / "text.txt"
    path.write_text("a dog\n")
    load_tokenised([path], bert_tokenizer, 1, tmp_path / "cache")
    with pytest.raises(BadInput, match="CSV by its name"):
        load_tokenised([path.rename(tmp_path / "text.csv")], bert_tokenizer, 1, tmp_path / "cache")


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("content", [LINES, LINES[: LINES.index(b"\n") + 1], b"\n\n" + LINES + b"prose\n" * 5,
                                     b" " + LINES.replace(b"\n", b"\r\n ")])  # fmt: skip
def test_lines_of_json_are_refused_whatever_the_name(tmp_path, packed, content):
    path = tmp_path / "text.txt"
    path.write_bytes(PACKED[packed](content))
    assert "most of its first lines are JSON objects" in refused(path)


@pytest.mark.parametrize("row", ['"{i}","a, b","c ""d"" e"', '{i},"a sentence"', '"a sentence",{i}', '"a", "b"'])
def test_rows_of_quoted_cells_are_refused_whatever_the_name(tmp_path, row):
    path = tmp_path / "text.txt"
    path.write_text("id,text\n" + "".join(row.replace("{i}", str(i)) + "\n" for i in range(9)))
    assert "most of its first lines are rows of quoted cells" in refused(path)


@pytest.mark.parametrize(
    "lines",
    {
        "commas": ["Red, green, blue", "one,two,three"] * 9,
        "dialogue": ['"I came, I saw", he said.', '"No," she said.', '"Why?"', 'He said "yes, no", and left.'] * 9,
        "one dialogue": ['"a","b"', '"c","d"'],
        "quoted lines": ['"A whole sentence, in quotation marks."'] * 20,
        "a table within prose": ['"a","b"'] * 40 + ["A sentence."] * 60,
        "braces": ["{a} is a set", "{not json}", '{"half":', "[1, 2]", '"text"', "12"] * 3,
        "deep braces": ['{"a":' * 5000] * 3,
        "a word that names a column": ["text", "A sentence."],
    }.values(),
)
def test_prose_is_read(tmp_path, lines):
    path = tmp_path / "notes.csv.txt"
    path.write_text("\n".join(lines))
    assert [row for (row,) in Reader([path])] == lines


@pytest.mark.parametrize(
    ("name", "row"),
    [("x.tsv", ["text"]), ("x.tsv.gz", ["sentence"]), ("x.tsv", ["sentence1", "sentence2", "score"]),
     ("x.txt", ["sent0", "sent1", "hard_neg"]), ("x.txt", ["anchor", "positive"])],
)  # fmt: skip
def test_a_header_is_no_row_of_sentences(tmp_path, name, row):
    path = tmp_path / name
    path.write_text("\n" + "\t".join(row) + "\n" + "\t".join("A dog." for _ in row) + "\n")
    with pytest.raises(BadInput) as caught:
        list(Reader([path], len(row)))
    assert str(caught.value).startswith(f"{path}:2: a header ({', '.join(row)}), not a row of sentences; remove ")


@pytest.mark.parametrize("row", [["dog", "puppy"], ["A dog.", "text"]])
def test_short_rows_are_no_header(tmp_path, row):
    path = tmp_path / "pairs.tsv"
    path.write_text("\t".join(row) + "\n")
    assert list(Reader([path], 2)) == [tuple(row)]


@pytest.mark.parametrize("header", ["id,sentence", "sentence1, sentence2, score", '"id","text"'])
def test_a_csv_under_another_name_is_known_by_its_header(tmp_path, header):
    path = tmp_path / "rows.txt"
    path.write_text(header + "\n" + "".join(f"{n},a dog runs,1\n" for n in range(20)))
    assert f"{path}: its first line is a header" in refused(path)
    path.write_text("A title, text and all\n" + "One, two, three.\n" * 20)
    assert len(list(Reader([path]))) == 21, "prose with commas"
