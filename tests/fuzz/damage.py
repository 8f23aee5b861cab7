"""What every fuzz test shares: damaged files, altered JSON, and the rule for what a parser may do
with them.

It returns a value or raises one of the classes of errors.py with a message of one line. Each test
makes 200 examples; FUZZ_EXAMPLES=100000 in the environment makes as many.
"""

import json
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from common.errors import ProjectError

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "200"))
MANY = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
_BYTES = [b"\n", b"\r", b"\t", b" ", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xc3"]
_BYTES += [b"-", b"nan", b"1e999", b'"', b"{", b"["]
_ODD = [
    None,
    True,
    0,
    -1,
    3,
    1.5,
    10**30,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "x",
    "a\nb",
    "\ud800",
    "../x",
]
_ODD += [[], [[]], [1], {}, {"a": 1}, [{}], ["x", "x"]]


@st.composite
def damaged(draw, valid, scraps=()):
    """Random bytes, or a valid file after one to four edits, with `scraps` among them."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=60))
    content = bytearray(valid)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(start + draw(st.sampled_from([0, 1, 2, 8, 64, 1 << 20])), len(content))
        new = draw(
            st.sampled_from([b"", bytes(content[start:stop]) * 2, *_BYTES, *scraps])
            | st.binary(max_size=4)
        )
        content[start:stop] = new
    return bytes(content)


@st.composite
def altered(draw, valid):
    """A JSON value in which one to three parts are replaced, removed or added."""
    content = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 3))):
        parts = [(None, None), *_parts(content)]
        parent, key = parts[draw(st.integers(0, len(parts) - 1))]
        odd = json.loads(json.dumps(draw(st.sampled_from(_ODD))))
        if parent is None:
            if draw(st.integers(0, 9)) == 0:
                content = odd
        elif draw(st.booleans()):
            parent[key] = odd
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(["", "new", str(key).upper()]))] = parent.pop(key)
        else:
            parent.insert(key, parent[key])
    return content


def _parts(content):
    """(container, key) of every part."""
    if isinstance(content, dict | list):
        for key in list(content) if isinstance(content, dict) else range(len(content)):
            yield content, key
            yield from _parts(content[key])


def as_json(valid):
    """The bytes of an altered JSON value, or of a damaged file of it."""
    text = json.dumps(valid)
    return altered(valid).map(lambda content: json.dumps(content).encode()) | damaged(
        text.encode(), [b"[" * 5000]
    )


def result(parse, *arguments):
    """What the parser returns; None where it refuses its input as it should."""
    try:
        return parse(*arguments)
    except ProjectError as refusal:
        assert len(str(refusal).splitlines()) == 1, repr(str(refusal))
        return None
