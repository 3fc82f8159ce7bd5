"""What the parent makes of the files of the ranks, and of the machine."""

import json
import os
import subprocess
import sys
import types

import pytest

from flatout.engine.live_view import WatchedTraining, read_ranks
from flatout.engine.process.utilization import UtilizationSampler
from flatout.schema.live import GpuNow, RankNow
from flatout.schema.plain import to_plain

GONE = 2**22 + 1  # above the largest process number of Linux


def write(folder, number, **fields):
    path = folder / f"live-{number}.json"
    path.write_text(json.dumps(to_plain(RankNow(**fields))))
    os.utime(path, (1000 + number, 1000 + number))


def test_ranks_that_train_are_read_in_order_and_those_that_have_ended_are_not(tmp_path):
    write(tmp_path, 0, rank=1, pid=os.getpid(), steps=5)
    write(tmp_path, 1, rank=0, pid=os.getpid(), steps=6)
    write(tmp_path, 2, rank=0, pid=GONE, steps=7)
    assert [(each.rank, each.steps) for each in read_ranks(tmp_path)] == [(0, 6), (1, 5)]


def test_where_none_trains_any_more_the_last_word_of_each_counts(tmp_path):
    write(tmp_path, 0, rank=0, pid=GONE, steps=5)
    write(tmp_path, 1, rank=0, pid=GONE, steps=9)
    write(tmp_path, 2, rank=1, pid=GONE, steps=8)
    assert [(each.rank, each.steps) for each in read_ranks(tmp_path)] == [(0, 9), (1, 8)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"steps": "many"}', "null"])
def test_a_file_that_is_no_file_of_a_rank_is_left_out(tmp_path, text):
    (tmp_path / "live-0.json").write_text(text)
    assert read_ranks(tmp_path) == ()
    assert read_ranks(tmp_path / "gone") == ()


class Onlooker:
    def __init__(self):
        self.moments = []

    def wrote(self, chunk):
        raise AssertionError("no stream of a test is a terminal")

    def draw(self, now):
        self.moments.append(now)


@pytest.mark.slow
def test_a_training_is_followed_until_it_ends(tmp_path):
    onlooker = Onlooker()
    busy = "import time\nuntil = time.monotonic() + 2\nwhile time.monotonic() < until: pass"
    with WatchedTraining("train.py", tmp_path, onlooker) as following:
        process = subprocess.Popen([sys.executable, "-c", busy])
        following.started()
        write(tmp_path, 0, pid=process.pid, steps=3)
        process.wait()
    *_, before, last = [moment for moment in onlooker.moments if moment is not None]
    assert (before.script, before.ranks[0].steps, last.ranks[0].steps) == ("train.py", 3, 3)
    assert before.machine.main_cpu > 0.1
    assert before.machine.worker_cpu == pytest.approx(0, abs=1e-6)
    assert before.machine.memory_bytes > 0
    assert before.machine.available_bytes > 0
    assert len(before.machine.cores) == os.cpu_count()
    assert last.wall_s >= before.wall_s > 1


def test_a_training_that_could_not_be_started_leaves_nothing(tmp_path):
    onlooker = Onlooker()
    with pytest.raises(OSError), WatchedTraining("train.py", tmp_path, onlooker):
        raise OSError
    assert [moment.ranks for moment in onlooker.moments] == [()]


def test_every_gpu_is_read_and_what_a_driver_does_not_offer_is_left_out(monkeypatch):
    def no(*_):
        raise RuntimeError("not supported")

    fake = types.ModuleType("pynvml")
    fake.nvmlInit = lambda: None
    fake.nvmlDeviceGetCount = lambda: 2
    fake.nvmlDeviceGetHandleByIndex = lambda number: number
    fake.nvmlDeviceGetUtilizationRates = lambda handle: types.SimpleNamespace(gpu=40 + handle)
    fake.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(used=10, total=80)
    fake.nvmlDeviceGetClockInfo = fake.nvmlDeviceGetPowerUsage = no
    fake.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: 0x4
    fake.NVML_CLOCK_SM = 1
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    sampler = UtilizationSampler()
    assert sampler.gpus() == tuple(
        GpuNow(busy=share, memory_bytes=10, total_bytes=80, throttled="power cap") for share in (0.4, 0.41)
    )
    sampler.read(os.getppid(), 0.0)
    found = sampler.read(os.getppid(), 0.0)
    assert (found.gpu_busy, found.gpu_throttled, found.gpu_power_w) == (0.4, "power cap", 0.0)
