"""How a training goes while it goes: the light probes, and twice a second one small file that says what they saw.

Nothing is recorded and nothing but the last seconds is kept. Processes that train nothing (workers of a loader,
launchers) write nothing and start no thread.
"""

import atexit
import contextlib
import json
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.recent_steps import Window
from flatout.probe.core.step_tracker import activity_of
from flatout.probe.light_probes import LightProbes
from flatout.probe.loader.loading import WatchedLoader
from flatout.probe.model.losses import LIMIT
from flatout.schema.live import LIVE_FILES, RankNow
from flatout.schema.order import Order
from flatout.schema.plain import to_plain
from flatout.schema.run import Outside, Step

__all__ = ["LiveProbes", "follow"]

_PERIOD_S = 0.5
_TELL_EVERY_NS = 20_000_000
_MOST_FAILURES = 20  # in a row, after which nobody is told any more
_MOST_WAITING = 1 << 16  # steps between two looks; should nobody look any more, the oldest are lost


class LiveProbes:
    """The light probes of one process, and the thread that writes what they saw."""

    def __init__(self, order: Order) -> None:
        """Put the probes together; nothing is installed yet."""
        self.event_log = EventLog(self._step, self._outside, interval_ns=_TELL_EVERY_NS)
        self.event_log.tracker.trouble = self._trouble
        self.probes = LightProbes(self.event_log)
        self.probes.losses.kept.extend([0.0] * LIMIT)  # full: nobody asks for them here
        self.rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) or 0)
        self._window = Window()
        self._steps: deque[Step] = deque(maxlen=_MOST_WAITING)
        self._stretches: deque[Outside] = deque(maxlen=_MOST_WAITING)
        self._note = ""
        self._pid = os.getpid()
        self._file = Path(order.folder) / LIVE_FILES.replace("*", f"{self.rank}-{self._pid}")
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def attach(self) -> None:
        """Install the probes; where one cannot be, none is, and the training goes on without a live view."""
        self.probes.training.on_exit = self.finish
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.finish)
        try:
            for install in self.probes.installers():
                install(self.probes.seams)
        except Exception:
            self.detach()
            raise

    def detach(self) -> None:
        """Take the probes away; what the script keeps of them passes everything on."""
        self.event_log.thread = -1
        self.probes.remove()

    def finish(self) -> None:
        """Say for the last time how it went: the process ends."""
        if self._thread is None or os.getpid() != self._pid or self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        with contextlib.suppress(Exception):
            self.event_log.finish()
        with contextlib.suppress(Exception):
            self.write()

    # -- what happens in the training ---------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        self._steps.append(step)
        if self._thread is None:  # the first one
            self._thread = threading.Thread(target=self._write_now_and_then, name="flatout-live", daemon=True)
            self._thread.start()

    def _outside(self, stretch: Outside) -> None:
        self._stretches.append(stretch)

    def _trouble(self, error: Exception) -> None:
        """A probe failed: take all of them away, say so, let the training go on."""
        if not self._note:
            self._note = f"the probes failed and were removed: {type(error).__name__}: {error}"[:300]
            self.detach()

    def _forked(self) -> None:
        """In a forked child nothing is told: it is another process's work."""
        self.event_log.thread = -1

    # -- what is written ----------------------------------------------------------------------------------------

    def _write_now_and_then(self) -> None:
        failed = 0
        while failed < _MOST_FAILURES and not self._over.wait(_PERIOD_S):
            try:
                self.write()
                failed = 0
            except Exception:  # a full disk, a folder that is gone: the training has nothing to do with it
                failed += 1

    def write(self) -> None:
        """Write the file anew, beside it and then in its place.

        Raises:
            OSError: it cannot be written.
        """
        text = json.dumps(to_plain(self.now())).encode()
        partial = self._file.with_suffix(".partial")
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, text)
        finally:
            os.close(file)
        os.replace(partial, self._file)

    def now(self) -> RankNow:
        """Return what the training does at this moment."""
        self._window.add(_taken(self._steps), _taken(self._stretches))
        tracker, fields = self.event_log.tracker, self._window.fields()
        loader = self._loader()
        if loader is None:
            fields["epoch"] = fields["batches"] = 0
        samples = self.probes.batch_size() or 0
        ready, most_ready = _ready(loader)
        idle_ns = time.perf_counter_ns() - self._window.last_ns if self._window.steps else 0
        return RankNow(
            rank=self.rank,
            world_size=int(os.environ.get("WORLD_SIZE", "1") or 1),
            pid=self._pid,
            **fields,
            samples_per_step=samples * fields.get("batches_per_step", 1.0),
            epoch_batches=loader.facts.num_batches if loader is not None else 0,
            ready=ready,
            most_ready=most_ready,
            idle_s=max(0, idle_ns) / 1e9,
            doing=activity_of(tracker).value,
            note=self._note,
        )

    def _loader(self) -> WatchedLoader | None:
        """Return the loader that was trained on last, if there is one."""
        trained = set(self.event_log.tracker.passes.trained)
        latest = max(trained, default=0)
        return next((one for one in list(self.probes.loading.loaders) if latest in one.passes), None)


def _taken(waiting: "deque[Any]") -> list[Any]:
    """Take what is there; the training goes on appending meanwhile."""
    return [waiting.popleft() for _ in range(len(waiting))]


def _ready(loader: WatchedLoader | None) -> tuple[int | None, int]:
    """Return how many batches of a loader's workers nobody has taken yet, and how many there may be.

    These are torch's own inner names; where they are others, nothing is known.
    """
    iterator = loader.iterator() if loader is not None and loader.iterator is not None else None
    if iterator is None or not getattr(iterator, "_num_workers", 0):
        return None, 0
    try:
        most = iterator._num_workers * iterator._prefetch_factor
        early = sum(len(info) == 2 for info in list(iterator._task_info.values()))  # arrived before their turn
        queues = {id(queue): queue for queue in (iterator._data_queue, iterator._worker_result_queue)}
        return min(most, early + sum(queue.qsize() for queue in queues.values())), most
    except Exception:  # `qsize` is not there on every system
        return None, 0


_current: list[LiveProbes] = []
"""The probes of this process, held here so that they live as long as the process."""


def follow(order: Order) -> None:
    """Attach the probes to this process; once in a process."""
    if _current:
        return
    probes = LiveProbes(order)
    _current.append(probes)
    probes.attach()
