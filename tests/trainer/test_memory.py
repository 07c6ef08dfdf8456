"""What is freed stays with the process. (Running out of memory: tests/pipelines.)"""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from rareword.trainer import memory

def step():
    for size in (2**24, 2**25, 3 * 2**23):
        torch.zeros(size).add_(1)

if sys.argv[1] == "keep":
    memory.keep_freed()
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
def test_the_system_gives_the_memory_of_a_step_once() -> None:
    """By the pages that the system had to give a process: five steps like the first one."""
    given = [
        int(
            subprocess.run(
                [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
            ).stdout
        )
        for how in ("keep", "give back")
    ]
    assert given[0] < given[1] / 3
