"""What holds for every test; the fixtures that many share are in fixtures.py."""

import gc
import itertools
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the libraries are imported, so before any of them
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import pytest


def pytest_configure(config):
    """Load the shared fixtures, and torch, but not in the process that only hands out tests."""
    if not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("tests.fixtures")


def pytest_make_parametrize_id(config, val, argname):
    """Name bytes by their argument: packed ones hold the hour, and workers would differ."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_finish():
    """Leave the modules' objects out of the garbage collections that follow every training."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _no_flushes():
    """What tests write need not survive a power cut; a run flushes 80 files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_bfloat16():
    """`--bf16 auto` is float32, so that every machine has the same numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cpu.get_capabilities", dict)
        yield


_TESTS = itertools.count()


@pytest.fixture(autouse=True)
def _own_vectors(tmp_path_factory, monkeypatch):
    """A test keeps vectors in a file of its own, whatever the folder."""
    name = f"vectors-{next(_TESTS)}.sqlite"
    monkeypatch.setattr("eval.store.FILE", str(tmp_path_factory.getbasetemp() / name))
