"""Lines of files in every packing are read, or refused with their file and line."""

import bz2
import gzip
import lzma
import os

import pytest
import zstandard

from data.lines import LONGEST, content_hash, numbered_lines
from tests.data.conftest import written
from tests.refusals import refused

LINES = ["A first sentence.", "", "Zwölf Boxkämpfer jagen Viktor 🙂", "the last one"]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
pack_zst = zstandard.ZstdCompressor().compress
PACKED = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": pack_zst}
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0\x01\x02\x03\x04"


def lines(path):
    return [line for _, line in numbered_lines(path)]


BOM, CRLF = b"\xef\xbb\xbf", TEXT.replace(b"\n", b"\r\n")
FIRST, SECOND = TEXT[:18], TEXT[18:]
FORMS = [TEXT, CRLF, BOM + TEXT, TEXT[:-1], gzip.compress(BOM + CRLF, mtime=0)]
FORMS += [gzip.compress(FIRST) + gzip.compress(SECOND) + bytes(512)]
FORMS += [lzma.compress(FIRST) + lzma.compress(b"") + lzma.compress(SECOND)]
FORMS += [lzma.compress(FIRST) + bytes(200_000) + lzma.compress(SECOND)]  # long padding
FORMS += [bz2.compress(FIRST) + bz2.compress(SECOND)]
FORMS += [SKIPPABLE + pack_zst(FIRST) + SKIPPABLE + pack_zst(SECOND)]
FORMS += [zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)]
FORMS += [pack(TEXT) for pack in PACKED.values()]


@pytest.mark.parametrize("content", FORMS)
def test_every_form_of_a_file_gives_the_same_lines_whatever_its_name(tmp_path, content):
    for name in ("text.txt", "text.gz", "text.xz"):
        assert lines(written(tmp_path, content, name)) == LINES


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(tmp_path, inside):
    path = written(tmp_path, f"one{inside}two\nthree\n".encode())
    assert lines(path) == [f"one{inside}two", "three"]


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("good\n\nö".encode()[:-1], 3, "'utf-8' codec"),  # half a character at the end
        (b"a\n\xed\xa0\x80\n", 2, "'utf-8' codec"),  # a surrogate
        (b"good\ngood\nb\x00d\n", 3, "NUL byte"),
        (b"good\n" + b"x" * (LONGEST + 1) + b"\ngood\n", 2, "longer than 1,000,000"),
    ],
)
@pytest.mark.parametrize("pack", ["", "zst"])
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path, content, line, said, pack):
    path = written(tmp_path, PACKED.get(pack, bytes)(content), f"text.{pack}")
    message = refused(lines, path)
    assert message.startswith(f"{path}:{line}: ") and said in message


def test_a_path_that_is_not_a_readable_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "pipe"):
        for read in (lines, lambda path: content_hash([path])):
            assert refused(read, path).startswith(f"{path}: ")


@pytest.mark.parametrize("suffix", PACKED)
def test_a_compressed_file_cut_off_anywhere_is_refused(tmp_path, suffix):
    packed = PACKED[suffix](TEXT)
    for length in range(10, len(packed)):  # from fewer bytes the packing is not known
        path = written(tmp_path, packed[:length], f"cut.{suffix}")
        assert refused(lines, path).startswith(f"{path}:"), length


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize(
    "damage",
    [
        lambda first, second: first + second + b"not compressed",
        lambda first, second: first + b"junk" + second,
        lambda first, second: first + b"\xff" + second[1:],  # a damaged magic
        lambda first, second: first + second[:-5],
    ],
)
def test_damage_after_the_first_compressed_stream_is_refused(tmp_path, suffix, damage):
    path = written(tmp_path, damage(PACKED[suffix](FIRST), PACKED[suffix](SECOND)))
    assert "the compressed file is damaged or truncated" in refused(lines, path)


def test_the_content_hash_sees_bytes_and_order_not_names(tmp_path):
    first, second = written(tmp_path, b"one\n", "a"), written(tmp_path, b"two\n", "b")
    same = written(tmp_path, b"one\n", "c")
    assert content_hash([first, second]) == content_hash([same, second])
    both = written(tmp_path, b"one\ntwo\n", "d")
    lists = [[first, second], [second, first], [first], [second], [both], [first, first]]
    assert len({content_hash(paths) for paths in lists}) == 6
