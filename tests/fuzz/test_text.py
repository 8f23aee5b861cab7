"""Training text, plain and labelled."""

import gzip
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from data.source import Source
from data.text import read_text
from tests.fuzz.damage import EXAMPLES, MANY, damaged, result

FEWER = settings(MANY, max_examples=max(EXAMPLES // 10, 1))  # of what writes a cache
_TEXT = "A first sentence.\r\nZwölf Boxkämpfer\u2028jagen\x85 Viktor\n\n a third \n".encode()
_ROWS = b"premise\thypothesis\tlabel\nA dog runs.\tIt sleeps.\tcontradiction\na\tb\t-\nc\td\tentailment\n"


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
