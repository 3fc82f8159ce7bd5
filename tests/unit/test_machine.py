"""Cores and memory that control groups leave to a process: both generations, nested, in and out of containers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatout import machine

GIB = 2**30


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return a function that lays out control groups: what the process is told, and the files of each folder."""
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_OWN", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    machine._smallest_quota.cache_clear()

    def lay_out(own, **folders):
        (tmp_path / "own").write_text(own)
        for folder, files in folders.items():
            place = tmp_path / "cgroup" / folder.replace("__", "/").strip("/")
            place.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (place / (name if "." in name else name.replace("_", ".", 1))).write_text(text)

    yield lay_out
    machine._smallest_quota.cache_clear()


@pytest.mark.parametrize(
    ("quota", "cores"), [("200000 100000", 2), ("250000 100000", 3), ("max 100000", 64), ("10000 100000", 1), ("", 64)]
)
def test_a_container_s_share_of_time_is_its_cores(groups, quota, cores):
    groups("0::/\n", **{"": {"cpu_max": quota}})
    assert machine.usable_cores() == cores


def test_the_smallest_of_nested_groups_counts(groups):
    groups(
        "0::/slice/job/step\n",
        slice={"cpu_max": "800000 100000"},
        slice__job={"cpu_max": "400000 100000"},
        slice__job__step={"cpu_max": "max 100000"},
    )
    assert machine.usable_cores() == 4


@pytest.mark.parametrize("own", ["3:cpu,cpuacct:/docker/abc\n", "3:cpu:/docker/abc\n0::/\n"])
def test_the_older_generation_whose_own_path_is_not_seen_from_inside(groups, own):
    mounted = "cpu,cpuacct" if "cpuacct" in own else "cpu"
    groups(own, **{mounted: {"cpu_cfs_quota_us": "150000\n", "cpu_cfs_period_us": "100000\n"}})
    assert machine.usable_cores() == 2


def test_affinity_counts_where_it_is_smaller(groups, monkeypatch):
    groups("0::/\n", **{"": {"cpu_max": "800000 100000"}})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    assert machine.usable_cores() == 1


def test_without_control_groups_nothing_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "none")
    monkeypatch.setattr(machine, "_OWN", tmp_path / "nothing")
    assert machine.group_memory_left() is None


def test_memory_that_is_left_leaves_out_files_nobody_uses(groups):
    told = {"memory_max": str(8 * GIB), "memory_current": str(6 * GIB), "memory_stat": f"anon 1\ninactive_file {GIB}\n"}
    groups("0::/job\n", job=told)
    assert machine.group_memory_left() == 3 * GIB


def test_memory_without_a_limit_is_not_limited(groups):
    groups("0::/job\n", job={"memory_max": "max\n", "memory_current": "5\n"})
    assert machine.group_memory_left() is None


def test_memory_of_the_older_generation(groups):
    stat = f"inactive_file 1\ntotal_inactive_file {GIB}\n"
    limited = {"memory.limit_in_bytes": str(4 * GIB), "memory.usage_in_bytes": str(2 * GIB), "memory_stat": stat}
    groups("4:memory:/job\n", memory={"memory.limit_in_bytes": str(2**63 - 4096), "memory.usage_in_bytes": "7"})
    assert machine.group_memory_left() is None
    groups("4:memory:/job\n", memory__job=limited)
    assert machine.group_memory_left() == 3 * GIB


def test_rubbish_in_the_files_limits_nothing(groups):
    groups("rubbish\n0::/\n:::\n", **{"": {"cpu_max": "a b", "memory_max": "x"}})
    assert machine.usable_cores() == 64
    assert machine.group_memory_left() is None


@pytest.mark.parametrize(
    ("controller", "file", "value", "asked", "expected"),
    [
        ("cpu", "cpu.cfs_quota_us", "100000", "usable_cores()", "1"),
        ("memory", "memory.limit_in_bytes", str(GIB), "group_memory_left() <= 2 ** 30", "True"),
    ],
)
def test_a_real_group(controller, file, value, asked, expected):
    folder = Path("/sys/fs/cgroup") / controller / f"flatout-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"control groups of the older generation cannot be made here: {error.strerror}")
    try:
        (folder / file).write_text(value)
        script = (
            f"import os; open({str(folder / 'cgroup.procs')!r}, 'w').write(str(os.getpid()));"
            f"from flatout.machine import *; print({asked})"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
    finally:
        folder.rmdir()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not count it")
def test_the_wait_for_a_core_is_that_of_the_thread_or_process_that_is_asked_for():
    waited = int(Path("/proc/self/schedstat").read_text().split()[1])
    assert machine.core_wait_ns(os.getpid()) >= waited
    assert machine.core_wait_ns() >= 0


def test_where_it_is_not_counted_nothing_waits(monkeypatch):
    assert machine.core_wait_ns(2**30) == 0  # no process has that number
    for text in (b"", b"12", b"a b c"):
        monkeypatch.setattr(machine, "_read", lambda file, size, text=text: text)
        assert machine.core_wait_ns() == 0


def test_a_process_runs_until_it_has_ended_though_nobody_has_waited_for_it():
    process = subprocess.Popen(["sleep", "60"])
    assert machine.is_running(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not machine.is_running(process.pid)
    process.wait()
    assert not machine.is_running(process.pid)
    assert machine.is_running(os.getpid())
