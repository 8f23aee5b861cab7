"""What goes wrong in a run, by {name: number}. An event is opening, renaming, removing or making
something below the run's folder.

    kill, stop, full: N               at event N the process kills itself, gets SIGTERM, or a full
                                      disk
    limit: BYTES                      no file may grow beyond this (a write inside torch fails)
    nan_loss, nan_gradient, large_gradient, nan_weight: N    at optimizer step N
"""

import errno
import os
import resource
import signal
import sys
from contextlib import contextmanager
from functools import partial

import torch

from models.training import EncoderForTraining
from training.trainer import EmbeddingTrainer

_WRITING = os.O_WRONLY | os.O_RDWR


def _fail():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


_ACTIONS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "full": _fail,
}


def watch_events(folder, faults, seen):
    """Count in `seen` what is written below `folder`, and act at the event a fault names. A disk
    that has failed stays so."""
    owner = os.getpid()

    def hook(event, arguments):
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & _WRITING
        else:
            writes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
        if not writes or os.getpid() != owner or not str(arguments[0]).startswith(folder):
            return
        seen.append(event)
        number = len(seen)
        for name, action in _ACTIONS.items():
            at = faults.get(name, 1 << 30)
            lasting = name == "full" and event in ("open", "os.mkdir", "os.rename")
            if number == at or (lasting and number > at):
                action()

    sys.addaudithook(hook)


def break_numbers(faults):
    """Make a loss, a gradient or a weight NaN, or a gradient large, at an optimizer step."""
    value, after = float("nan"), EncoderForTraining.after_step
    step, count = EmbeddingTrainer.training_step, EmbeddingTrainer.count_terms

    def training_step(self, model, inputs, *others):
        now = self.state.global_step + 1
        for name, factor in (("nan_gradient", value), ("large_gradient", 1e30)):
            if now == faults.get(name):
                next(iter(self.model.parameters())).register_hook(partial(torch.mul, other=factor))
        return step(self, model, inputs, *others)

    def count_terms(self, terms, *others):
        if self.state.global_step + 1 == faults.get("nan_loss"):
            terms = {name: term * value for name, term in terms.items()}
        count(self, terms, *others)

    def after_step(self):
        after(self)
        self.steps_seen = getattr(self, "steps_seen", 0) + 1
        if self.steps_seen == faults.get("nan_weight"):
            with torch.no_grad():
                next(iter(self.parameters())).view(-1)[0] = value

    EmbeddingTrainer.training_step, EmbeddingTrainer.count_terms = training_step, count_terms
    EncoderForTraining.after_step = after_step


@contextmanager
def breaking(folder, faults):
    """A run that writes below `folder`; says at its end how many events there were."""
    events = []
    watch_events(folder, faults, events)
    break_numbers(faults)
    if "limit" in faults:
        resource.setrlimit(resource.RLIMIT_FSIZE, (faults["limit"], faults["limit"]))
    try:
        yield
    finally:
        sys.stderr.write(f"\n{len(events)} events\n")
