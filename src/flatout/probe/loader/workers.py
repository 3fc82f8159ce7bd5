"""The deep run inside DataLoader workers, whatever started them: fork, forkserver or spawn.

The worker's main function is replaced under its own name at module level, so that spawn and forkserver, which pickle
it by name, find it; and it is replaced in the child as well, because the child imports torch under observation too.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.probe.loader.fetching import FETCHERS, FetchWatch
from flatout.probe.loader.worker_thread_trial import ThreadTrial
from flatout.probe.system.line_sampler import Doing, LineSampler
from flatout.probe.system.timeline import fetched
from flatout.schema.phase import Phase
from flatout.schema.plain import to_plain
from flatout.schema.run import WorkerFacts

__all__ = ["watch_workers"]

_WRITE_S = 0.4


def watch_workers(seams: Seams, folder: Path) -> None:
    """Make every DataLoader worker of this process write its own part file below `folder`."""

    def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def loop(*args: Any, **kwargs: Any) -> Any:
            watch = None
            with contextlib.suppress(Exception):
                watch = _WorkerWatch(folder, int(args[10]) if len(args) > 10 else 0)
                watch.begin()
            try:
                return original(*args, **kwargs)
            finally:
                if watch is not None:
                    watch.write()

        return loop

    seams.wrap("torch.utils.data._utils.worker:_worker_loop", make)


class _WorkerWatch:
    """One worker's fetch times and lines, written anew every 0.4 s, since workers are often killed."""

    def __init__(self, folder: Path, worker_id: int) -> None:
        self._path = folder / f"deep-worker-{os.getpid()}.json"
        self._worker_id = worker_id
        doing = Doing()
        self._fetching = FetchWatch(doing)
        self._trial = ThreadTrial()
        self._sampler = LineSampler("worker", doing)
        self._start = perf_counter_ns()

    def begin(self) -> None:
        seams = Seams()
        self._fetching.install(seams)
        for name in FETCHERS:
            seams.wrap(name, self._tried)
        self._sampler.start()
        threading.Thread(target=self._write_now_and_then, name="flatout-worker", daemon=True).start()

    def _tried(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        trial, fetching = self._trial, self._fetching

        def fetch(fetcher: Any, index: Any) -> Any:
            hits.count += 1
            fetching.aside = trial.before()
            start, cpu = perf_counter_ns(), thread_time_ns()
            batch = original(fetcher, index)  # what ends with an error is no batch
            trial.after((perf_counter_ns() - start) / 1e9, (thread_time_ns() - cpu) / 1e9)
            return batch

        return fetch

    def _write_now_and_then(self) -> None:
        while True:
            threading.Event().wait(_WRITE_S)
            self.write()

    def write(self) -> None:
        facts = WorkerFacts(
            pid=os.getpid(),
            worker_id=self._worker_id,
            torch_threads=self._trial.own or torch.get_num_threads(),
            os_threads=_os_threads(own=1 + self._sampler.num_threads),
            fetches=sum(stats.fetches for stats in self._fetching.stats.values()),
            busy_s=self._fetching.busy_ns / 1e9,
            cpu_s=self._fetching.busy_cpu_ns / 1e9,
            alive_s=(perf_counter_ns() - self._start - self._fetching.aside_ns) / 1e9,
            one_thread=self._trial.facts(),
        )
        body = {
            "worker": to_plain(facts),
            "spans": to_plain(tuple(fetched(f"worker {self._worker_id}", self._fetching.spans))),
            "fetching": {name: to_plain(stats) for name, stats in self._fetching.stats.items()},
            "lines": to_plain([cost for cost in self._sampler.costs() if cost.phase is Phase.INPUT][:200]),
        }
        partial = self._path.with_suffix(f".{threading.get_ident()}.partial")
        with contextlib.suppress(OSError):
            partial.write_text(json.dumps(body), encoding="utf-8")
            partial.replace(self._path)


def _os_threads(own: int) -> int:
    try:
        return len(os.listdir("/proc/self/task")) - own
    except OSError:
        return 1
