"""Samples the machine from outside the script: CPU by process and core, memory, shared memory, disk, GPU.

From outside, because a sampler inside would take the interpreter lock of the training.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import psutil

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
        self._read_bytes = 0
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
        self._last = time.monotonic()
        cpu, memory, private, read_bytes = self._tree(root)
        busy = sum(psutil.cpu_times()[:3])
        own = _cpu_s(psutil.Process())
        used = sorted((cpu[pid] - self._cpu.get(pid, 0.0) for pid in cpu), reverse=True)
        used = [seconds / elapsed for seconds in used if seconds >= 0]
        system = (busy - self._total - (own - self._own)) / elapsed
        first = not self._samples and not self._cpu
        read = max(0, read_bytes - self._read_bytes) / elapsed
        self._cpu, self._total, self._own, self._read_bytes = cpu, busy, own, read_bytes
        if first:
            return
        self._samples.append(
            Utilization(
                at_s=at_s,
                main_cpu=used[0] if used else 0.0,
                worker_cpu=sum(used[1:]),
                foreign_cpu=max(0.0, system - sum(used)),
                cores=tuple(percent / 100 for percent in psutil.cpu_percent(percpu=True)),
                memory_bytes=memory,
                private_bytes=private,
                available_bytes=psutil.virtual_memory().available,
                shm_used_share=_shm_share(),
                read_bytes_s=read,
                **self._gpu(),
            )
        )

    def _tree(self, root: int) -> tuple[dict[int, float], int, int, int]:
        cpu: dict[int, float] = {}
        memory = private = read_bytes = 0
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(root).children(recursive=True):
                with contextlib.suppress(psutil.Error), process.oneshot():
                    cpu[process.pid] = _cpu_s(process)
                    held = process.memory_info()
                    memory += held.rss
                    private = max(private, held.rss - getattr(held, "shared", held.rss))
                    read_bytes += _read_bytes(process)
        return cpu, memory, private, read_bytes

    def _gpu(self) -> dict[str, Any]:
        if not self._gpus:
            return {}
        import pynvml

        handle = self._gpus[0]
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


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


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
        return [pynvml.nvmlDeviceGetHandleByIndex(0)]
    except Exception:  # no driver, no GPU, another library of that name: there is nothing to read
        return []
