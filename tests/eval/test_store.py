"""Vectors are kept by their text: computed once, read back bit for bit, whatever happens."""

import sqlite3

import numpy as np
import pytest

import eval.store
from common.errors import BadInput, StorageError
from eval.store import Kept
from tests.encoders import encode_of
from tests.eval.toys import Letters
from tests.faults.forked import Race

TEXTS = [f"text {number} " + "at sea " * (number % 5) for number in range(20)]


class Sevenths(Letters):
    """Entries that lose something in any shorter precision."""

    def __call__(self, texts):
        return super().__call__(texts) / 7


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(eval.store, "PIECE", 6)


def test_a_text_is_encoded_once_for_every_model_length_prompt_and_precision(tiny_bert, tmp_path):
    encode = encode_of(tiny_bert, "avg")
    first = Kept(encode, tmp_path)
    expected = first([*TEXTS[:9], *TEXTS[:3]])
    assert first.encoded == 9 and np.abs(expected - encode([*TEXTS[:9], *TEXTS[:3]])).max() < 1e-5
    again = Kept(encode_of(tiny_bert, "avg"), tmp_path)
    assert (again(TEXTS[:12])[:9] == expected[:9]).all() and again.encoded == 3
    short, bf16, prompted = (encode_of(tiny_bert, "avg") for _ in range(3))
    short.max_length, bf16.bf16, prompted.prompt = 8, True, "query: "
    for other in (short, bf16, prompted, encode_of(tiny_bert, "cls_before_pooler")):
        kept = Kept(other, tmp_path)
        kept(TEXTS[:9])
        assert kept.encoded == 9


def test_processes_divide_the_texts_although_one_is_killed(tmp_path):
    race = Race(tmp_path, 3)

    class Noting(Sevenths):
        def __call__(self, texts):
            race.begin(" / ".join(texts))
            return super().__call__(texts)

    def command(number):
        assert (Kept(Noting(), tmp_path)(TEXTS) == Sevenths()(TEXTS)).all()

    notes = race.run(command)
    assert len(notes) == 5 and len({*notes}) == 4, "one of four pieces began twice"


def test_a_damaged_vector_is_computed_again_and_a_damaged_file_is_one_error(tmp_path, monkeypatch):
    path = tmp_path / "vectors.sqlite"
    monkeypatch.setattr(eval.store, "FILE", path.name)
    expected = Kept(Sevenths(), tmp_path)(TEXTS)
    with sqlite3.connect(path) as file:
        [(key, vector), *_] = file.execute("SELECT * FROM vectors").fetchall()
        changed = vector[:-1] + bytes([vector[-1] ^ 1])
        file.execute("UPDATE vectors SET vector = ? WHERE key = ?", (changed, key))
    kept = Kept(Sevenths(), tmp_path)
    assert (kept(TEXTS) == expected).all() and kept.encoded == 1
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(BadInput, match=r"vectors\.sqlite: file is not a database; .* or delete it"):
        Kept(Sevenths(), tmp_path)(TEXTS)
    path.unlink()
    assert (Kept(Sevenths(), tmp_path)(TEXTS) == expected).all()


def test_a_full_disk_is_one_error(tmp_path, monkeypatch):
    connect = sqlite3.connect

    def full(*arguments, **named):
        file = connect(*arguments, **named)
        file.execute("PRAGMA max_page_count = 4")
        return file

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(StorageError, match="disk is full"):
        Kept(Sevenths(), tmp_path)([f"{number}" for number in range(500)])
