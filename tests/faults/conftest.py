"""Runs of the same flags, and an undisturbed one."""

import pytest

from tests.faults.harness import Runs, weights


@pytest.fixture(scope="session")
def server(tiny_bert, text_file, dev_file, tmp_path_factory):
    flags = {"model_name_or_path": tiny_bert, "train_file": text_file, "dev_file": dev_file}
    made = Runs(tmp_path_factory.mktemp("faults"), **flags)
    yield made
    made.close()


@pytest.fixture(scope="session")
def reference(server):
    """sha256 of the uninterrupted run."""
    assert server.run("reference") == 0, server.said("reference")
    return weights(server.folder / "reference")
