import os
import signal
import sys
import time
from threading import Thread

import pytest

from training import faults
from training.faults import SIGNALS, Stopping, run_to_its_end

CHILD = """
import os, signal, sys, time
from pathlib import Path
signal.signal(int(sys.argv[1]), lambda *_: sys.exit(75))
part = Path(sys.argv[2] + ".part")
part.write_text(f"{os.getpid()} {os.getpgrp()}")
part.rename(sys.argv[2])
time.sleep(60)
"""


@pytest.fixture
def answered():
    """All signals as in a terminal, also where the tests run under nohup."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_the_parent_alone_ends_the_child_which_is_waited_for(number, answered, tmp_path):
    ready = tmp_path / "ready"

    def ask():
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    Thread(target=ask).start()
    assert run_to_its_end([sys.executable, "-c", CHILD, str(int(number)), str(ready)]) == 75
    process, group = map(int, ready.read_text().split())
    assert process == group != os.getpgrp()  # so that Ctrl-C, which a terminal sends to a group, is not answered twice
    assert all(signal.getsignal(number) is signal.SIG_DFL for number in SIGNALS)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_the_exit_code_is_the_childs():
    assert run_to_its_end([sys.executable, "-c", "import sys; sys.exit(3)"]) == 3


def test_only_a_signal_that_comes_later_ends_the_process_at_once(answered, monkeypatch):
    ended = []
    monkeypatch.setattr(faults.os, "_exit", ended.append)
    asked = Stopping()
    with asked.handled(), asked.held():
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert (asked.name, ended) == ("SIGTERM", [])
        monkeypatch.setattr(faults, "ONE_REQUEST", 0.0)
        time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        assert (asked.name, ended) == ("SIGTERM", [128 + signal.SIGINT])
