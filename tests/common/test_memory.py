"""Freed memory is reused without returning to the kernel."""

import platform
import subprocess
import sys

import pytest

from tests.sources import ROOT

FAULTS = """
import resource
from common.memory import keep_freed_memory
{}
for number in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [bytearray(b"x") * (24 * 2**20) for _ in range(4)]  # below every glibc's limit; together 24,576 pages
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(call: str) -> int:
    run = [sys.executable, "-c", FAULTS.format(call)]
    return int(subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_a_large_array_reuses_the_pages_of_the_last_one():
    assert page_faults("keep_freed_memory()") < 100
