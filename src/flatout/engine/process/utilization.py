"""Samples the machine from outside the script: CPU by process and core, memory, shared memory, disk, GPU.

From outside, because a sampler inside would take the interpreter lock of the training.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import psutil

from flatout.machine import core_wait_ns
from flatout.schema.live import GpuNow
from flatout.schema.run import Utilization

__all__ = ["UtilizationSampler"]

_PERIOD_S = 0.5
_MOST_SAMPLES = 4096


class UtilizationSampler:
    """Takes one sample every half second while it is called; ever fewer of a long training, 2048 to 4096 in all."""

    def __init__(self) -> None:
        """Take the first reading, from which the next one counts."""
        self._samples: list[Utilization] = []
        self._last = time.monotonic()
        self._cpu: dict[int, float] = {}
        self._waited_s: dict[int, float] = {}  # for a core, by process
        self._tree_s = 0.0  # CPU time of the tree, of processes that have ended, too
        self._read_bytes = 0
        self._first = True
        self._total = sum(psutil.cpu_times()[:3])
        self._own = _cpu_s(psutil.Process())
        psutil.cpu_percent(percpu=True)
        self._gpus = _open_gpus()
        self._period_s = _PERIOD_S

    def samples(self) -> tuple[Utilization, ...]:
        """Return what was sampled."""
        return tuple(self._samples)

    def sample(self, root: int, at_s: float) -> None:
        """Take a sample of the tree below process `root` when one is due."""
        elapsed = time.monotonic() - self._last
        if elapsed < self._period_s:
            return
        if len(self._samples) >= _MOST_SAMPLES:  # a training of hours: every second one is enough
            self._samples = self._samples[::2]
            self._period_s *= 2
        reading = self.read(root, at_s)
        if reading is not None:
            self._samples.append(reading)

    def read(self, root: int, at_s: float, trainers: Collection[int] = ()) -> Utilization | None:
        """Return what the tree below process `root` and the machine did since the last time, None the first time.

        `trainers` are the processes that count as training; where none is named it is the busiest one.
        """
        elapsed = max(1e-3, time.monotonic() - self._last)
        self._last = time.monotonic()
        cpu, tree_s, memory, private, read_bytes = self._tree(root)
        busy = sum(psutil.cpu_times()[:3])
        own = _cpu_s(psutil.Process())
        used = {pid: max(0.0, cpu[pid] - self._cpu.get(pid, 0.0)) / elapsed for pid in cpu}
        main = sum(used.get(pid, 0.0) for pid in trainers) if trainers else max(used.values(), default=0.0)
        tree = max(sum(used.values()), (tree_s - self._tree_s) / elapsed)
        system = (busy - self._total - (own - self._own)) / elapsed
        core_wait = self._core_wait_s(used) / elapsed
        first, self._first = self._first, self._first and not cpu
        read = max(0, read_bytes - self._read_bytes) / elapsed
        self._cpu, self._tree_s, self._total, self._own, self._read_bytes = cpu, tree_s, busy, own, read_bytes
        if first:
            return None
        return Utilization(
            at_s=at_s,
            main_cpu=main,
            worker_cpu=max(0.0, tree - main),
            foreign_cpu=max(0.0, system - tree),
            core_wait=min(1.0, core_wait),
            cores=tuple(percent / 100 for percent in psutil.cpu_percent(percpu=True)),
            memory_bytes=memory,
            private_bytes=private,
            available_bytes=psutil.virtual_memory().available,
            shm_used_share=_shm_share(),
            read_bytes_s=read,
            **(_gpu(self._gpus[0]) if self._gpus else {}),
        )

    def _core_wait_s(self, used: Mapping[int, float]) -> float:
        """Return how long the main thread of the busiest of the processes waited for a core since the last time."""
        before_s, self._waited_s = self._waited_s, {pid: core_wait_ns(pid) / 1e9 for pid in used}
        busiest = max(used, key=lambda pid: used[pid], default=0)
        return max(0.0, self._waited_s[busiest] - before_s[busiest]) if busiest in before_s else 0.0

    def _tree(self, root: int) -> tuple[dict[int, float], float, int, int, int]:
        cpu: dict[int, float] = {}
        tree_s, memory, private, read_bytes = 0.0, 0, 0, 0
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(root).children(recursive=True):
                with contextlib.suppress(psutil.Error), process.oneshot():
                    cpu[process.pid] = _cpu_s(process)
                    tree_s += cpu[process.pid] + _ended_s(process)
                    held = process.memory_info()
                    memory += held.rss
                    private = max(private, held.rss - getattr(held, "shared", held.rss))
                    read_bytes += _read_bytes(process)
        return cpu, tree_s, memory, private, read_bytes

    def gpus(self) -> tuple[GpuNow, ...]:
        """Return what every NVIDIA device of this machine does now; none without a driver."""
        found = [_gpu(handle) for handle in self._gpus]
        return tuple(
            GpuNow(
                busy=each.get("gpu_busy", 0.0),
                memory_bytes=each.get("gpu_memory_bytes", 0),
                total_bytes=_total_bytes(handle),
                power_w=each.get("gpu_power_w", 0.0),
                throttled=each.get("gpu_throttled", ""),
            )
            for handle, each in zip(self._gpus, found, strict=True)
        )


def _gpu(handle: Any) -> dict[str, Any]:
    import pynvml

    found: dict[str, Any] = {}
    readings: dict[str, Callable[[], Any]] = {
        "gpu_busy": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "gpu_memory_bytes": lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        "gpu_clock_mhz": lambda: float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        "gpu_power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "gpu_throttled": lambda: _throttle(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
    }
    for name, read in readings.items():
        with contextlib.suppress(Exception):  # a reading this driver does not offer is left out
            found[name] = read()
    return found


def _total_bytes(handle: Any) -> int:
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except Exception:  # as above
        return 0


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _ended_s(process: psutil.Process) -> float:
    """Return the CPU time of children that have ended: workers may live shorter than the time between two readings."""
    times = process.cpu_times()
    return float(getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0))


def _read_bytes(process: psutil.Process) -> int:
    try:
        return int(process.io_counters().read_bytes)
    except (psutil.Error, AttributeError, OSError):
        return 0


def _shm_share() -> float:
    try:
        return float(psutil.disk_usage("/dev/shm").percent) / 100
    except OSError:
        return 0.0


def _throttle(reasons: int) -> str:
    names = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal"}
    return ", ".join(name for bit, name in names.items() if reasons & bit)


def _open_gpus() -> list[Any]:
    try:
        import pynvml

        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no driver, no GPU, another library of that name: there is nothing to read
        return []
