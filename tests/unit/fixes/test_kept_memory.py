"""Freed memory stays with the process: a step that takes the same blocks again meets no page faults."""

import subprocess
import sys
from dataclasses import replace

import pytest

from flatout.fixes.kept_memory import FIX, bound, choices
from flatout.rules.core.example import example
from flatout.schema.facts import PageFaults
from flatout.schema.run import Causes, Environment

LINUX = Environment(platform="Linux-6.1-x86_64-with-glibc2.36")
PROGRAM = """\
import resource, sys
import torch
import flatout

kept = flatout.keep_freed_memory() if sys.argv[1] == "keep" else False

def step():
    held = [torch.ones(1 << 20) for _ in range(8)]
    return held[0] + held[1]

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def ran(word, **variables):
    command = [sys.executable, "-c", PROGRAM, word]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables or None)
    kept, faults = done.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt of the GNU C library")
def test_blocks_that_are_freed_are_taken_again_without_page_faults():
    kept, faults = ran("keep")
    assert kept
    assert faults < 200
    assert ran("leave", MALLOC_MMAP_THRESHOLD_="131072")[1] > 10 * faults + 1000  # what it spares, where it is needed


@pytest.mark.slow
def test_an_allocator_that_is_set_already_is_left_alone():
    kept, faults = ran("keep", MALLOC_MMAP_THRESHOLD_="131072")
    assert not kept
    assert faults > 1000


def recorded(faults, environment=LINUX):
    found = PageFaults(steps=60, faults=faults, system_s=1.0, wall_s=6.0, fault_s=1e-6)
    return example(step_ms=100, forward=90, causes=Causes(page_faults=found), environment=environment).run


def test_it_is_offered_where_steps_take_memory_anew():
    assert choices(recorded(600_000)) == ({},)
    assert FIX.unfit(recorded(600)) == "steps take little memory anew"
    assert FIX.unfit(recorded(600_000, Environment(platform="macOS-15"))) == "it needs the GNU C library"
    told = replace(LINUX, variables={"MALLOC_TOP_PAD_": "1"})
    assert FIX.unfit(recorded(600_000, told)) == "the environment sets MALLOC_TOP_PAD_ already"


def test_it_can_give_no_more_than_the_time_in_the_kernel():
    assert bound(recorded(600)) == pytest.approx(1.0, abs=1e-3)
    assert bound(recorded(60_000_000)) == pytest.approx(1.2)
