"""A bar in a terminal; in a file a line now and then, and none for short work."""

import io
import re
import sys

import pytest

from common import progress as module
from common.progress import progress


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    monkeypatch.setattr(module.tqdm, "monitor_interval", 0)
    return now


def test_a_file_gets_a_whole_line_every_half_minute(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(terminal=False))
    with progress(90, "encode", "sentence") as bar:
        for _ in range(9):
            clock[0] += 10.0
            bar.update(10)
    lines = sys.stderr.getvalue()
    assert "\r" not in lines
    assert re.findall(r"(?m)^encode: (\d+) of 90 sentences,", lines) == ["30", "60", "90"]
    assert "00:30 so far, about 01:00 left" in lines


def test_short_work_leaves_no_line_and_a_terminal_gets_a_bar(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(terminal=False))
    with progress(100, "encode", "sentence") as bar:
        bar.update(50)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", Stream(terminal=True))
    with progress(100, "encode", "sentence") as bar:
        clock[0] += 10.0
        bar.update(50)
    assert "\r" in sys.stderr.getvalue() and "50/100" in sys.stderr.getvalue()
