"""Training text, labelled text and word vectors."""

import gzip
import math
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.words import read_word_vectors
from data.lines import content_hash, numbered_lines
from data.source import Source
from data.text import read_text
from tests.fuzz.damage import EXAMPLES, MANY, as_json, damaged, result

FEWER = settings(MANY, max_examples=max(EXAMPLES // 10, 1))  # of what writes a cache
_TEXT = "A first sentence.\r\nZwölf Boxkämpfer\u2028jagen\x85 Viktor\n\n a third \n".encode()
_ROWS = b"premise\thypothesis\tlabel\nA dog runs.\tIt sleeps.\tcontradiction\na\tb\t-\nc\td\tentailment\n"
_WORDS = b"the 0.1 -2 3e-4\n, 1 2 3\nat name@mail.org 1 0 -1\n"
_ANNOUNCED = b"3 3\n" + _WORDS


def _rows(path, **how):
    """The rows and facts, read without a cache."""
    with TemporaryDirectory() as folder:
        text = read_text(Source((path,), **how), folder)
        return [*zip(*(text.rows[name][:] for name in text.rows.column_names), strict=True)], text.facts


@FEWER
@given(damaged(_TEXT), st.integers(1, 3))
def test_text_is_read_or_refused_and_means_the_same_in_every_form(tmp_path, content, columns):
    def rows(data, name):
        path = tmp_path / name
        path.write_bytes(data)
        parsed = result(lambda: _rows(path, columns=columns))
        return parsed and parsed[0]

    parsed = rows(content, "text")
    for row in parsed or []:
        assert len(row) == columns
        assert all(cell and cell == cell.strip() and not {"\n", "\x00", "\t"} & set(cell) for cell in row)
    if not content.startswith((b"\x1f\x8b", b"BZh")):  # what the library takes for packed
        assert rows(gzip.compress(content, mtime=0), "packed") == parsed
    if b"\r" not in content:
        assert rows(content.replace(b"\n", b"\r\n"), "crlf") == parsed


@MANY
@given(damaged(_TEXT))
def test_lines_are_read_or_refused(tmp_path, content):
    path = tmp_path / "text"
    path.write_bytes(content)
    parsed = result(lambda: list(numbered_lines(path)))
    assert parsed is None or [number for number, _ in parsed] == list(range(1, len(parsed) + 1))
    assert len(content_hash([path])) == 64


@FEWER
@given(damaged(_ROWS, [b"-", b"neutral", b"\tneutral\n"]))
def test_labelled_text_is_read_or_refused(tmp_path, content):
    path = tmp_path / "rows"
    path.write_bytes(content)
    parsed = result(lambda: _rows(path, labelled=True))
    if parsed is None:
        return
    rows, facts = parsed
    assert len(rows) == facts["rows"] > 0
    assert all(all(row[:2]) and row[2] in range(3) for row in rows)


@FEWER
@given(
    as_json([{"text": "a dog", "title": ""}, {"text": "b", "title": "c"}]), st.sampled_from(["json", "jsonl", "csv"])
)
def test_tables_are_read_or_refused(tmp_path, content, suffix):
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(content)
    parsed = result(lambda: _rows(path, names=("title", "text"), titled=True))
    assert parsed is None or all(isinstance(title, str) and text.strip() for title, text in parsed[0])


@MANY
@given(st.booleans(), st.data())
def test_word_vectors_are_read_or_refused(tmp_path, header, data):
    path = tmp_path / "vectors"
    path.write_bytes(data.draw(damaged(_ANNOUNCED if header else _WORDS, [b"1e39", b"3 3\n", b" 1", b"_", b"0x1"])))
    parsed = result(lambda: read_word_vectors(path, header, zero_rows=2))
    if parsed is None:
        return
    assert parsed.table.shape[0] == 2 + len(parsed.words) and parsed.table.shape[1] > 0
    assert not parsed.table[:2].any() and math.isfinite(parsed.table.astype(float).sum())
    assert len(set(parsed.words)) == len(parsed.words) > 0 and all(parsed.words)
