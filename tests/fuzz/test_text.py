"""Training text, labelled text and word vectors."""

import gzip
import math

from hypothesis import given
from hypothesis import strategies as st

from baselines.words import read_word_vectors
from data.text import NLI_LABELS, LabelledReader, Reader, content_hash
from tests.fuzz.damage import MANY, damaged, result

_TEXT = "A first sentence.\r\nZwölf Boxkämpfer\u2028jagen\x85 Viktor\n\n a third \n".encode()
_ROWS = b"premise\thypothesis\tlabel\nA dog runs.\tIt sleeps.\tcontradiction\na\tb\t-\nc\td\tentailment\n"
_WORDS = b"the 0.1 -2 3e-4\n, 1 2 3\nat name@mail.org 1 0 -1\n"
_ANNOUNCED = b"3 3\n" + _WORDS


@MANY
@given(damaged(_TEXT), st.booleans())
def test_text_is_read_or_refused_and_means_the_same_in_every_form(tmp_path, content, two):
    def rows(data, name):
        path = tmp_path / name
        path.write_bytes(data)
        return result(lambda: list(Reader([path] * (1 + two))))

    found = rows(content, "text")
    assert found is None or len(found) % (1 + two) == 0
    for (row,) in found or []:
        assert row and row == row.strip() and not {"\n", "\x00", "\t"} & set(row)
    if not content.startswith(b"\x1f\x8b"):
        assert rows(gzip.compress(content, mtime=0), "packed") == found
    if b"\r" not in content:
        assert rows(content.replace(b"\n", b"\r\n"), "crlf") == found
    assert len(content_hash([tmp_path / "text"])) == 64


@MANY
@given(damaged(_ROWS, [b"-", b"neutral", b"\tneutral\n"]))
def test_labelled_text_is_read_or_refused(tmp_path, content):
    path = tmp_path / "rows"
    path.write_bytes(content)
    reader = LabelledReader([path])
    found = result(lambda: list(reader))
    if found is None:
        return
    assert len(found) == reader.rows > 0
    assert reader.rows + reader.undecided + reader.empty_lines + 1 == len(content.removesuffix(b"\n").split(b"\n"))
    assert all(len(row) == 3 and all(row) and row[2] in NLI_LABELS for row in found)


@MANY
@given(st.booleans(), st.data())
def test_word_vectors_are_read_or_refused(tmp_path, header, data):
    path = tmp_path / "vectors"
    path.write_bytes(data.draw(damaged(_ANNOUNCED if header else _WORDS, [b"1e39", b"3 3\n", b" 1", b"_", b"0x1"])))
    found = result(lambda: read_word_vectors(path, header, zero_rows=2))
    if found is None:
        return
    assert found.table.shape[0] == 2 + len(found.words) and found.table.shape[1] > 0
    assert not found.table[:2].any() and math.isfinite(found.table.astype(float).sum())
    assert len(set(found.words)) == len(found.words) > 0 and all(found.words)
