"""What a command imports, which is most of the time of a short one."""

import os
import subprocess
import sys

import pytest

from embedder import Embedder
from tests.sources import ROOT

# Each takes from a tenth of a second to two.
SLOW = {"bm25s", "datasets", "matplotlib", "scipy.stats", "sentence_transformers", "sklearn"}
SLOW |= {"transformers.modeling_utils", "transformers.trainer"}
RUN = """
import atexit, runpy, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
del sys.argv[0]
run = runpy.run_path if sys.argv[0].endswith(".py") else runpy.run_module
run(sys.argv[0], run_name="__main__")
"""


def slow_imports(*argv):
    """The modules of `SLOW` that a script or module imports."""
    command = [sys.executable, "-c", RUN, *map(str, argv)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return SLOW & {*done.stderr.split()}


@pytest.mark.parametrize("command", ["eval", "search", "run_unsup.py"])
def test_help_imports_nothing_slow(command):
    assert slow_imports(command, "--help") == set()


def test_a_query_imports_a_model_and_no_more(tiny_bert, tmp_path):
    index = tmp_path / "index"
    Embedder(tiny_bert, pooling="avg").build_index(["a dog", "a river"]).save(index)
    loaded = slow_imports("search", "query", index, "a dog")
    assert loaded == {"bm25s", "transformers.modeling_utils"}


def test_a_finished_run_imports_nothing_that_trains(finished, unsup):
    """`TrainingArguments` imports transformers' base class of models by itself."""
    loaded = slow_imports("run_unsup.py", *unsup(method="simcse"))
    assert loaded == {"transformers.modeling_utils"}
