"""Every form of a text file is read, or refused with its file and line."""

import gzip
import lzma
import os

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import data.text
from common.errors import BadInput
from common.views import View
from data.collator import Collator
from data.text import LONGEST_LINE, LabelledReader, Reader, content_hash
from data.tokenised import load_tokenised

ROWS = [("A first sentence.",), ("Zwölf Boxkämpfer jagen Viktor 🙂",), ('a lone " quote',), ("the last one",)]
TEXT = "".join(f"{row[0]}\n" for row in ROWS).encode()
PACKED = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0\x01\x02\x03\x04"
HEADER = "premise\thypothesis\tlabel\n"
PAIRS = "a dog runs\ta dog moves\tentailment\n\na dog runs\ta dog sleeps\tcontradiction\n"
_MANY = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(folder, content, name="text.txt"):
    path = folder / name
    path.write_bytes(content)
    return path


def refused(path, columns=1):
    with pytest.raises(BadInput) as caught:
        list(Reader([path], columns))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    {
        "LF": TEXT,
        "CRLF": TEXT.replace(b"\n", b"\r\n"),
        "BOM": b"\xef\xbb\xbf" + TEXT,
        "BOM and CRLF": b"\xef\xbb\xbf" + TEXT.replace(b"\n", b"\r\n"),
        "no final newline": TEXT[:-1],
        "blanks around": TEXT.replace(b"\n", b" \n").replace(b"the last", b"  the last"),
        "gzip": gzip.compress(TEXT),
        "two gzip members": gzip.compress(TEXT[:18]) + gzip.compress(TEXT[18:]),
        "gzip with BOM and CRLF": gzip.compress(b"\xef\xbb\xbf" + TEXT.replace(b"\n", b"\r\n")),
        "xz": lzma.compress(TEXT),
        "two xz streams": lzma.compress(TEXT[:18]) + lzma.compress(TEXT[18:]),
        "two xz streams with padding": lzma.compress(TEXT[:18]) + bytes(8) + lzma.compress(TEXT[18:]) + bytes(4),
        "two xz streams with long padding": lzma.compress(TEXT[:18]) + bytes(20_000) + lzma.compress(TEXT[18:]),
        "three xz streams, one empty": lzma.compress(TEXT[:18]) + lzma.compress(b"") + lzma.compress(TEXT[18:]),
        "two gzip members and zeros": gzip.compress(TEXT[:18]) + gzip.compress(TEXT[18:]) + bytes(512),
        "zstd": PACKED["zst"](TEXT),
        "zstd between skippable frames": SKIPPABLE + PACKED["zst"](TEXT[:18]) + SKIPPABLE + PACKED["zst"](TEXT[18:]),
        "zstd without a size": zstandard.ZstdCompressor(write_content_size=False).compress(TEXT),
        "two zstd frames": PACKED["zst"](TEXT[:18]) + PACKED["zst"](TEXT[18:]),
        "zstd with a checksum": zstandard.ZstdCompressor(write_checksum=True).compress(TEXT),
    }.items(),
    ids=lambda item: item[0],
)
def test_the_same_rows_come_from_every_form_of_a_file(tmp_path, content):
    reader = Reader([written(tmp_path, content[1])])
    assert list(reader) == ROWS
    assert (reader.rows, reader.empty_lines) == (4, 0)


@pytest.mark.parametrize("suffix", PACKED)
def test_the_first_bytes_tell_the_compression_not_the_name(tmp_path, suffix):
    for name in ("text.txt", "text", "text.gz", "text.xz", "text.zst"):
        assert list(Reader([written(tmp_path, PACKED[suffix](TEXT), name)])) == ROWS
        assert list(Reader([written(tmp_path, TEXT, name)])) == ROWS


def test_three_files_are_one_text(tmp_path):
    lines = TEXT.splitlines(keepends=True)
    parts = [lines[0][:-1], gzip.compress(b"".join(lines[1:3])), lines[3]]
    paths = [written(tmp_path, part, f"part{i}") for i, part in enumerate(parts)]
    assert list(Reader(paths)) == ROWS
    assert list(Reader(paths[::-1])) == [ROWS[3], *ROWS[1:3], ROWS[0]]


def test_empty_lines_are_dropped_and_counted(tmp_path):
    reader = Reader([written(tmp_path, b"\none\n\n  \t \ntwo\n\r\n"), written(tmp_path, b"\nthree", "b.txt")])
    assert list(reader) == [("one",), ("two",), ("three",)]
    assert (reader.rows, reader.empty_lines) == (3, 5)
    assert list(reader) == [("one",), ("two",), ("three",)]
    assert (reader.rows, reader.empty_lines) == (3, 5), "a second pass counts anew"


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\r"])
def test_only_a_line_feed_ends_a_line(tmp_path, inside):
    assert list(Reader([written(tmp_path, f"one{inside}two\nthree\n".encode())])) == [(f"one{inside}two",), ("three",)]


def test_a_byte_order_mark_is_removed_at_the_start_of_a_file_only(tmp_path):
    marked = "\ufeffone\n\ufefftwo\n".encode()
    assert list(Reader([written(tmp_path, marked)])) == [("one",), ("\ufefftwo",)]


def test_rows_of_several_sentences(tmp_path):
    path = written(tmp_path, b"a b\tc\r\n\nd\t e \n")
    assert list(Reader([path], 2)) == [("a b", "c"), ("d", "e")]


@pytest.mark.parametrize(
    ("content", "columns", "line", "said"),
    {
        "latin-1": ("good\nZwölf\n".encode("latin-1"), 1, 2, "not UTF-8"),
        "latin-1 in the first line": ("Zwölf\n".encode("latin-1"), 1, 1, "byte 3 is not UTF-8"),
        "half a character at the end": ("good\n\nö".encode()[:-1], 1, 3, "not UTF-8"),
        "a surrogate": (b"a\n\xed\xa0\x80\n", 1, 2, "not UTF-8"),
        "UTF-16": ("a sentence\n".encode("utf-16"), 1, 1, ""),
        "NUL": (b"good\ngood\nb\x00d\n", 1, 3, "NUL byte at column 2"),
        "a long line": (b"good\n" + b"x" * (LONGEST_LINE + 1) + b"\ngood\n", 1, 2, "longer than 1,000,000"),
        "a long last line": (b"good\n" + b"x" * (LONGEST_LINE + 1), 1, 2, "longer than"),
        "a long line of CRLF": (b"x" * (LONGEST_LINE + 1) + b"\r\n", 1, 1, "longer than"),
        "a very long line": (b"x" * (3 * LONGEST_LINE), 1, 1, "longer than"),
        "two columns for one": (b"a\n\nb\tc\n", 1, 3, "2 tab-separated columns, expected 1; --columns 2"),
        "one column for two": (b"a\tb\nc\n", 2, 2, "1 tab-separated columns, expected 2"),
        "three columns for two": (b"a\tb\nc\td\te\n", 2, 2, "3 tab-separated columns, expected 2"),
        "an empty column": (b"a\tb\tc\nd\t \te\n", 3, 2, "column 2 is empty"),
        "an empty last column": (b"a\t\n", 2, 1, "column 2 is empty"),
    }.values(),
)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path, content, columns, line, said):
    path = written(tmp_path, content)
    message = refused(path, columns)
    assert message.startswith(f"{path}:{line}: ")
    assert said in message
    for name, pack in PACKED.items():
        packed = written(tmp_path, pack(content), f"text.{name}")
        assert refused(packed, columns) == message.replace(str(path), str(packed))


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_of_exactly_the_longest_length_is_read(tmp_path, end):
    line = b"x" * LONGEST_LINE
    assert list(Reader([written(tmp_path, line + end)])) == [(line.decode(),)]


def test_the_file_of_several_that_is_bad_is_named(tmp_path):
    good, bad = written(tmp_path, TEXT), written(tmp_path, b"fine\nn\xf6t\n", "bad.txt")
    with pytest.raises(BadInput, match=r"bad\.txt:2: "):
        list(Reader([good, bad]))


@pytest.mark.parametrize("content", [b"", b"\n", b"\n \r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_a_sentence_is_refused_by_name(tmp_path, content):
    good, path = written(tmp_path, TEXT), written(tmp_path, content, "hollow.txt")
    assert refused(path) == f"{path}: holds no sentence (empty, or only empty lines)"
    for pack in PACKED.values():
        assert "holds no sentence" in refused(written(tmp_path, pack(content), "hollow.bin"))
    with pytest.raises(BadInput, match=r"hollow\.txt: holds no sentence"):
        list(Reader([good, path]))


def test_what_is_no_file_is_refused_with_a_message_of_its_own(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    places = [tmp_path, tmp_path / "missing", tmp_path / "pipe", tmp_path / "loop", tmp_path / ("x" * 300)]
    said = ["is a folder; name its files", "no such file", "not a regular file"]
    said += [f"cannot be opened ({reason})" for reason in ("Too many levels of symbolic links", "File name too long")]
    for path, message in zip(places, said, strict=True):
        assert refused(path) == f"{path}: {message}"
        with pytest.raises(BadInput) as caught:
            content_hash([path])
        assert str(caught.value) == f"{path}: {message}"


def test_a_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path, TEXT)

    def denied(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(data.text.Path, "open", denied)
    assert refused(path) == f"{path}: cannot be opened (Permission denied)"
    with pytest.raises(BadInput, match="cannot be opened"):
        content_hash([path])


@pytest.mark.parametrize("suffix", PACKED)
def test_a_compressed_file_cut_off_anywhere_is_refused(tmp_path, suffix):
    packed = PACKED[suffix](TEXT)
    for length in range(2, len(packed)):  # one byte of a zstd file is the text `(`
        path = written(tmp_path, packed[:length], f"cut.{suffix}")
        assert refused(path).startswith(f"{path}:"), length


@pytest.mark.parametrize("suffix", PACKED)
def test_a_long_compressed_file_cut_off_is_refused_where_it_ends(tmp_path, suffix):
    lines = b"".join(b"%d is %d\n" % (i, i * i * 7919 % 104729) for i in range(60_000))
    packed = PACKED[suffix](lines)
    path = written(tmp_path, packed[: len(packed) // 2])
    message = refused(path)
    assert "damaged or cut off" in message
    number = int(message.removeprefix(f"{path}:").split(":")[0])
    assert 1 < number < 60_000


@pytest.mark.parametrize("suffix", PACKED)
def test_a_damaged_or_continued_compressed_file_is_refused(tmp_path, suffix):
    packed = PACKED[suffix](TEXT * 50)
    middle = len(packed) // 2
    damaged = (
        packed[: middle - 4] + bytes(byte ^ 0xFF for byte in packed[middle - 4 : middle + 4]) + packed[middle + 4 :]
    )
    assert refused(written(tmp_path, damaged))


def joined(suffix):
    """Two packed halves of a text, apart."""
    return PACKED[suffix](TEXT[:18]), PACKED[suffix](TEXT[18:])


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize(
    "damage",
    {
        "text behind": lambda first, second: first + second + b"not compressed",
        "a byte behind": lambda first, second: first + second + b"x",
        "zeros and a byte behind": lambda first, second: first + second + bytes(4) + b"x",
        "a long tail of text": lambda first, second: first + b"x" * 20_000,
        "text between": lambda first, second: first + b"junk" + second,
        "a damaged second magic": lambda first, second: first + b"\xff" + second[1:],
        "a damaged second header": lambda first, second: first + second[:2] + b"\xff" * 8 + second[10:],
        "a second one cut in its header": lambda first, second: first + second[:3],
        "a second one cut": lambda first, second: first + second[:-5],
        "another format behind": lambda first, second: first + (b"BZh9" + second),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_stands_behind_the_first_stream_is_read_or_refused(tmp_path, suffix, damage):
    path = written(tmp_path, damage[1](*joined(suffix)))
    assert "the compressed file is damaged or cut off" in refused(path)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_padding_that_the_xz_format_does_not_have_is_refused(tmp_path, count):
    first, second = joined("xz")
    assert "not a multiple of four" in refused(written(tmp_path, first + bytes(count) + second))
    assert "not a multiple of four" in refused(written(tmp_path, first + second + bytes(count)))


def test_zeros_behind_zstd_are_refused(tmp_path):
    for count in (1, 4, 9000):
        assert "damaged" in refused(written(tmp_path, PACKED["zst"](TEXT) + bytes(count)))


def test_the_content_hash_sees_bytes_and_order_not_names(tmp_path):
    one, two = written(tmp_path, b"one\n", "a"), written(tmp_path, b"two\n", "b")
    same = written(tmp_path, b"one\n", "c")
    assert content_hash([one, two]) == content_hash([same, two])
    both = written(tmp_path, b"one\ntwo\n", "d")
    assert len({content_hash(paths) for paths in ([one, two], [two, one], [one], [two], [both], [one, one])}) == 6


def test_rows_labels_and_what_was_left_out(bert_tokenizer, tmp_path):
    first = written(tmp_path, f"{HEADER}{PAIRS}a dog runs\ta river\t-\n".encode(), "pairs.tsv")
    second = written(tmp_path, f"{HEADER}a river\ta dog\tneutral\n".encode(), "more.tsv")
    corpus = load_tokenised([first, second], bert_tokenizer, None, tmp_path / "cache")
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
        "an unknown label": (HEADER + PAIRS + "a dog\ta river\tmaybe\n", ":5: label 'maybe' is not one of"),
        "another header": ("sentence1\tsentence2\tlabel\n" + PAIRS, ":1: the header is not `premise"),
        "no header": (PAIRS, ":1: the header is not"),
        "a missing column": (HEADER + "a dog\tentailment\n", ":2: 2 tab-separated columns, expected 3"),
        "an empty hypothesis": (HEADER + "a dog\t\tneutral\n", ":2: column 2 is empty"),
        "no rows": (HEADER, "holds no sentence"),
        "Latin-1": (HEADER.encode() + b"caf\xe9\ta dog\tneutral\n", ":2: byte 4 is not UTF-8"),
    }.values(),
)
def test_a_bad_file_of_labelled_pairs_is_one_clear_error(bert_tokenizer, tmp_path, text, said):
    path = written(tmp_path, text if isinstance(text, bytes) else text.encode(), "pairs.tsv")
    with pytest.raises(BadInput) as caught:
        load_tokenised([path], bert_tokenizer, None, tmp_path / "cache")
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
    path.write_text(HEADER + PAIRS)
    with pytest.raises(BadInput, match=r"pairs\.tsv:1: the header of labelled pairs.*run_sup\.py"):
        list(Reader([path], 3))


_CELL = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\x00"), min_size=1, max_size=20).filter(
    lambda cell: cell == cell.strip() and not cell.startswith("\ufeff")
)


@_MANY
@given(st.binary(max_size=300), st.integers(1, 3))
def test_any_bytes_are_read_or_refused(tmp_path, content, columns):
    reader = Reader([written(tmp_path, content)], columns)
    try:
        rows = list(reader)
    except BadInput:
        return
    assert len(rows) == reader.rows > 0
    for row in rows:
        assert len(row) == columns
        assert all(cell and not {"\n", "\t", "\x00"} & set(cell) for cell in row)


@_MANY
@given(st.sampled_from(sorted(PACKED)), st.data())
def test_any_damage_to_a_compressed_file_is_read_or_refused(tmp_path, suffix, data):
    packed = bytearray(PACKED[suffix](TEXT))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        list(Reader([written(tmp_path, bytes(packed))]))
    except BadInput:
        pass


@_MANY
@given(st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[_CELL] * n), min_size=1, max_size=8)), st.data())
def test_what_was_written_is_read(tmp_path, rows, data):
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    content = end.join("\t".join(row) for row in rows).encode() + data.draw(st.sampled_from([b"", end.encode()]))
    pack = data.draw(st.sampled_from([bytes, *PACKED.values()]))
    assert list(Reader([written(tmp_path, pack(content))], len(rows[0]))) == rows


@_MANY
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_the_rows_of_two_joined_texts_are_the_rows_of_both(tmp_path, first, second):
    def rows(content):
        try:
            return list(Reader([written(tmp_path, content)]))
        except BadInput as error:
            return [] if "holds no sentence" in str(error) else None

    if second.startswith(b"\xef\xbb\xbf") or None in (parts := (rows(first), rows(second))):
        return
    assert rows(first + b"\n" + second) == parts[0] + parts[1]
