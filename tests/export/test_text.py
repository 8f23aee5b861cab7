"""Words of strangers on a page: no syntax comes through, no path, no secret."""

import random
import re
from html import unescape

import pytest

from export.text import HIDDEN, escape, plain, short

HOSTILE = ["</script><b>|[x](y)", "`code`", "![i](http://e.org/x.png)", "[x](javascript:alert(1))"]
HOSTILE += ["~~x~~", "www.e.org", "me@e.org", "&lt;b&gt;", "$$x$$", "[CLS](x)"]
HOSTILE += ["[CLS]: http://e.org", "*a* _b_ **c**", "a\n---\nb: c", "\x1b[31mred", "a\u202eb"]


@pytest.mark.parametrize("word", HOSTILE)
def test_nothing_of_a_hostile_word_is_syntax(word):
    for made in (escape(word), plain(word)):
        assert not re.search(r"[<>|`\[\]*~$\n\x1b\u202e\\]", made)
    assert not re.search(r"://|www\.|@", escape(word))
    bare = re.sub(r"&#\d+;", "", escape(word))
    assert not re.search(r"[&#!@]", bare)


def test_an_escaped_word_reads_as_before():
    rng = random.Random(5)
    for _ in range(300):
        codes = rng.choices(range(32, 127), k=10) + rng.choices(range(160, 0xD800), k=10)
        word = "".join(map(chr, rng.sample(codes, 20)))
        printable = "".join(c if c.isprintable() else " " for c in word)
        assert unescape(escape(word)) == " ".join(printable.split())


SHORT = {"/home/someone/secret/text.txt": "text.txt", "/home/someone/": "PATH", "/": "PATH"}
SHORT |= {"C:\\Users\\someone\\text.txt": "text.txt", "C:\\Users\\someone": "PATH"}
SHORT |= {"~someone": "PATH", "runs/x/": "x", "3e-05": "3e-05", "hf_abcdefghijkl": HIDDEN}
SHORT["https://me:pass@e.org/x"] = HIDDEN


@pytest.mark.parametrize(("word", "expected"), SHORT.items())
def test_a_path_becomes_its_last_part(word, expected):
    assert short(word) == expected
