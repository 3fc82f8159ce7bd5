"""A training watched while it runs: what its ranks say of themselves, beside what the machine does.

Everything happens in threads of ours, twice a second, and nothing of it reaches the script: where watching fails, it
ends, and the training goes on.
"""

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Protocol, Self

import psutil

from flatout.engine.process.masked_signals import block_signals
from flatout.engine.process.terminal import OwnTerminal
from flatout.engine.process.utilization import UtilizationSampler
from flatout.machine import group_memory_left
from flatout.schema.live import LIVE_FILES, LiveNow, MachineNow, RankNow
from flatout.schema.plain import from_plain

__all__ = ["Onlooker", "WatchedTraining", "read_ranks"]

_DRAW_S = 0.1
_EVERY = 5  # drawings to one look at the machine


class Onlooker(Protocol):
    """Whoever is shown a training; called from threads of ours. It never raises and never keeps them long."""

    def wrote(self, chunk: bytes) -> None:
        """Take what the script has written."""

    def draw(self, now: LiveNow | None) -> None:
        """Show a new moment, or, where it is None, what was written since the last time."""


class WatchedTraining:
    """The threads that follow a training; a context manager around its process."""

    def __init__(self, script: str, folder: Path, onlooker: Onlooker) -> None:
        """Follow the ranks that write into `folder`."""
        self._script = script
        self._folder = folder
        self._onlooker = onlooker
        self.terminal = OwnTerminal(onlooker.wrote)
        self._begin = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="flatout-live", daemon=True)

    def __enter__(self) -> Self:
        self.terminal.__enter__()
        return self

    def started(self) -> None:
        """Begin: the script runs. No thread is there before, for it would be forked in whatever it is doing."""
        self.terminal.started()
        self._begin = time.monotonic()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.terminal.__exit__()
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._onlooker.draw(LiveNow(script=self._script, wall_s=self._wall_s(), ranks=read_ranks(self._folder)))

    def _wall_s(self) -> float:
        return time.monotonic() - self._begin

    def _follow(self) -> None:
        block_signals()
        machine, number = _Machine(), 0
        while not self._over.wait(_DRAW_S):
            number += 1
            now = None
            if number % _EVERY == 0:
                self.terminal.resize()
                ranks = read_ranks(self._folder)
                found = machine.now(frozenset(rank.pid for rank in ranks))
                now = LiveNow(script=self._script, wall_s=self._wall_s(), ranks=ranks, machine=found)
            self._onlooker.draw(now)


def read_ranks(folder: Path) -> tuple[RankNow, ...]:
    """Return what the ranks that train have said last; where none trains any more, what each has said in the end."""
    found: list[tuple[float, RankNow]] = []
    for path in folder.glob(LIVE_FILES):
        with contextlib.suppress(OSError, ValueError):
            said = from_plain(RankNow, json.loads(path.read_text(encoding="utf-8")))
            found.append((path.stat().st_mtime, said))
    found.sort(key=lambda each: (each[1].rank, each[0]))
    alive = tuple(said for _, said in found if psutil.pid_exists(said.pid))
    return alive or tuple({said.rank: said for _, said in found}.values())


class _Machine:
    """What the machine did since it was last asked."""

    def __init__(self) -> None:
        self._sampler = UtilizationSampler()
        self._last = MachineNow()
        self._at = time.monotonic()
        self._counts = _counts()

    def now(self, trainers: frozenset[int]) -> MachineNow:
        """Return it; what it said last where it cannot be read."""
        with contextlib.suppress(psutil.Error, OSError):
            self._last = self._read(trainers) or self._last
        return self._last

    def _read(self, trainers: frozenset[int]) -> MachineNow | None:
        reading = self._sampler.read(os.getpid(), 0.0, trainers)
        counts, before, at = _counts(), self._counts, time.monotonic()
        elapsed = max(1e-3, at - self._at)
        self._at, self._counts = at, counts
        if reading is None:
            return None
        disk_read, disk_write, net_in, net_out = (
            max(0.0, new - old) / elapsed for new, old in zip(counts, before, strict=True)
        )
        left = group_memory_left()
        return MachineNow(
            main_cpu=reading.main_cpu,
            worker_cpu=reading.worker_cpu,
            foreign_cpu=reading.foreign_cpu,
            cores=reading.cores,
            memory_bytes=reading.memory_bytes,
            available_bytes=min(reading.available_bytes, left if left is not None else reading.available_bytes),
            shm_used_share=reading.shm_used_share,
            disk_read_s=disk_read,
            disk_write_s=disk_write,
            net_in_s=net_in,
            net_out_s=net_out,
            gpus=self._sampler.gpus(),
        )


def _counts() -> tuple[float, float, float, float]:
    """Return the bytes read from and written to disks, received and sent since the machine started; 0 if untold."""
    disk = network = None
    with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
        disk = psutil.disk_io_counters()
    with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
        network = psutil.net_io_counters()
    read, written = (disk.read_bytes, disk.write_bytes) if disk else (0, 0)
    received, sent = (network.bytes_recv, network.bytes_sent) if network else (0, 0)
    return float(read), float(written), float(received), float(sent)
