"""What the script's own processes use is its own, however short they live."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import time

import pytest

from flatout.engine.process.utilization import UtilizationSampler

SHORT_LIVED = """
    import os, time
    def busy(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
    print("ready", flush=True)
    input()
    for number in range(6):
        pid = os.fork()
        if not pid:
            busy(0.1)
            os._exit(0)
        os.waitpid(pid, 0)
    print("done", flush=True)
    input()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the time of children that have ended is told by Linux")
def test_workers_that_end_between_two_readings_are_no_other_processes():
    script = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SHORT_LIVED)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert script.stdout.readline() == "ready\n"
        sampler = UtilizationSampler()
        sampler.read(os.getpid(), 0.0)
        begin = time.monotonic()
        script.stdin.write("\n")
        script.stdin.flush()
        assert script.stdout.readline() == "done\n"
        elapsed = time.monotonic() - begin
        reading = sampler.read(os.getpid(), 1.0)
        used = (reading.main_cpu + reading.worker_cpu) * elapsed
        assert used == pytest.approx(0.6, abs=0.15)  # six children of a tenth of a second
        assert reading.worker_cpu * elapsed > 0.4
    finally:
        script.communicate("\n")


def test_a_process_that_was_there_before_counts_from_the_first_reading_on():
    context = multiprocessing.get_context("fork")
    leave = context.Event()
    child = context.Process(target=leave.wait)
    child.start()
    try:
        sampler = UtilizationSampler()
        first = sampler.read(os.getpid(), 0.0)
        again = sampler.read(os.getpid(), 1.0)
        assert first is None or first.main_cpu < 2
        assert again.main_cpu + again.worker_cpu < 0.5
    finally:
        leave.set()
        child.join()
