"""Memory that is freed is there again without the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from mergekit_map.tasks.loglikelihood import keep_freed_memory

torch.set_num_threads(1)
if "keep" in sys.argv:
    keep_freed_memory()
for count in range(40):
    if count == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(1 << 20) for _ in range(8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_blocks_of_4_megabytes_cost_page_faults_once() -> None:
    def faults(*arguments: str) -> int:
        words = [sys.executable, "-c", SCRIPT, *arguments]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return int(done.stdout)

    if faults() < 1000:
        pytest.skip("this allocator keeps such blocks by itself")
    assert faults("keep") < 1000
