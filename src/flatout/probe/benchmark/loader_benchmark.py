"""`flatout.measure_loader`: how fast a data loader is by itself, where its time goes, and its best setting.

Nothing is trained. What the loader, its samplers, its data set and the process draw random numbers from stands where it
stood before, once it is over; the data set is asked for samples as in any pass.
"""

import contextlib
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from flatout.errors import UsageError
from flatout.foreign_load import ForeignLoad
from flatout.machine import usable_cores
from flatout.probe.benchmark.drawn_batches import DrawnBatches, Pacing, draw
from flatout.probe.benchmark.file_rates import SampleFiles, file_rate
from flatout.probe.benchmark.stage_times import StageTimes, time_stages
from flatout.probe.benchmark.worker_trials import ROUNDS, numbers_to_try, try_workers
from flatout.schema.facts import Frame
from flatout.schema.loader_figures import FileRate, LoaderFigures, WorkerSetting
from flatout.watch.dataset_state import random_states, restore_random_states
from flatout.watch.own_generators import generators_in, restore_states, states_of

__all__ = ["measure_loader", "measured"]

_SPEED, _STAGES = 0.4, 0.2  # shares of the time, at most; the rest is for numbers of workers
_TURN_S, _LEAST_TURN_S = 1.5, 0.2
_PARTS = 64  # batches made in one process, at most


def measure_loader(loader: Any, batches: int = 200, *, max_s: float = 60.0) -> LoaderFigures:
    """Draw batches from `loader`, without any training, and return how fast it is and what it waits for.

        print(flatout.measure_loader(loader))

    `batches`: how many are drawn for the speed; in several passes where a pass has fewer. `max_s`: about how long all
    of it may take. Of a `DataLoader` the parts of a batch are timed too, the files that it reads are read again to see
    what the disk gives, and other numbers of workers are tried. Random streams are left as they were.

    Raises:
        UsageError: `loader` is an iterator, or no loader at all.
    """
    if hasattr(type(loader), "__next__"):
        raise UsageError(
            f"{type(loader).__name__} is an iterator: what is drawn from it is gone.", "", "Give the loader itself."
        )
    if not hasattr(type(loader), "__iter__"):
        raise UsageError(f"{type(loader).__name__} cannot be iterated over.", "", "Give a DataLoader.")
    if batches < 2 or max_s <= 0:
        raise UsageError("A loader is measured with 2 batches at least.", "", "Leave `batches` out: 200 are drawn.")
    return measured(loader, batches, max_s, created_at=None)


def measured(loader: Any, batches: int, max_s: float, *, created_at: Frame | None) -> LoaderFigures:
    """Return the figures of `loader`, which was made at the line `created_at`."""
    load = ForeignLoad()
    with _streams_kept(loader):
        found = _Measurement(loader, batches, time.perf_counter(), max_s)
        found.measure()
    return found.figures(created_at, load.share())


@contextlib.contextmanager
def _streams_kept(loader: Any) -> Iterator[None]:
    """Put random streams back to where they stand now, those of the process and those of the loader."""
    dataset = getattr(loader, "dataset", None)
    samplers = [vars(each).get("generator") for each in _samplers(loader)]
    own = [each for each in (getattr(loader, "generator", None), *samplers) if each is not None]
    with contextlib.suppress(Exception):  # looking into a data set runs code of the script's
        own += generators_in(dataset)
    own = list({id(each): each for each in own}.values())
    streams, states = random_states(), states_of(own)
    try:
        yield
    finally:
        restore_random_states(streams)
        restore_states(own, states)


def _samplers(loader: Any) -> list[Any]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    found = [getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    return [each for each in found if hasattr(each, "__dict__")]


@dataclass
class _Measurement:
    """What is known so far."""

    loader: Any
    batches: int
    began_s: float
    max_s: float
    drawn: DrawnBatches | None = None
    stages: StageTimes | None = None
    files: FileRate | None = None
    settings: tuple[WorkerSetting, ...] = ()
    notes: list[str] = field(default_factory=list)

    def measure(self) -> None:
        """Draw from the loader as it is; take it apart where it is one of torch's."""
        workers = getattr(self.loader, "num_workers", 0)
        pacing = Pacing(
            batches=self.batches, until_s=self._by(_SPEED), least=2 * workers + 1, latest_s=self._by(2 * _SPEED)
        )
        self.drawn = draw(self._walked(), pacing, workers=workers, known_size=self._size())
        why = _whole_only(self.loader)
        if why:
            self.notes.append(f"only its speed was measured: {why}")
            return
        self._take_apart()
        self._try_workers(workers)

    def figures(self, created_at: Frame | None, others: float) -> LoaderFigures:
        """Return what was found."""
        drawn, stages, cores = self.drawn, self.stages, usable_cores()
        assert drawn is not None
        return LoaderFigures(
            name=type(getattr(self.loader, "dataset", self.loader)).__name__,
            created_at=created_at,
            batch_size=self._size(),
            workers=getattr(self.loader, "num_workers", 0),
            batches=drawn.count,
            samples_s=drawn.samples_s(),
            mb_s=drawn.mb_s(),
            first_batch_s=drawn.first_batch_s(),
            pauses=drawn.pauses(),
            made_ms=stages.made_ms() if stages else None,
            waiting=stages.waiting() if stages else 0.0,
            stages=stages.stages() if stages else (),
            lines=stages.lines() if stages else (),
            cores=cores,
            cores_samples_s=stages.cores_samples_s(cores) if stages else None,
            files=self.files,
            settings=self.settings,
            others=others,
            notes=tuple(self.notes),
        )

    def _walked(self) -> Any:
        """Return what is drawn from: a copy of torch's loader, whose own kept workers go on undisturbed."""
        if _whole_only(self.loader):
            return self.loader
        walked = copy.copy(self.loader)
        vars(walked)["_iterator"] = None
        return walked

    def _take_apart(self) -> None:
        assert self.drawn is not None
        try:
            with SampleFiles() as read:
                self.stages = time_stages(
                    self.loader, min(self.batches, _PARTS), time.perf_counter() + _STAGES * self.max_s, self.drawn.size
                )
        except Exception as error:  # a data set that asks which worker it is in, for one
            self.notes.append(f"its parts were not timed, as it fails without workers: {type(error).__name__}: {error}")
            return
        made = self.stages.count + 1  # with the one that was made first, and is not timed
        self.files = file_rate(read.found(), max(0, read.read_bytes) / made)

    def _try_workers(self, own: int) -> None:
        if isinstance(self.loader.dataset, IterableDataset):
            self.notes.append("other numbers of workers were not tried: each would read a part of the stream, or all")
            return
        numbers = numbers_to_try(own, self.stages.waiting() if self.stages else 0.0)
        left = self._by(1.0) - time.perf_counter()
        seconds = min(_TURN_S, left / ROUNDS / len(numbers))
        if seconds < _LEAST_TURN_S:
            self.notes.append("other numbers of workers were not tried: there was no time left (max_s, --budget)")
            return
        self.settings = try_workers(self.loader, numbers, seconds, self._by(1.0))

    def _by(self, share: float) -> float:
        return self.began_s + share * self.max_s

    def _size(self) -> int:
        size = getattr(self.loader, "batch_size", None)
        return size if isinstance(size, int) else 0


def _whole_only(loader: Any) -> str:
    """Return why a loader cannot be taken apart; empty: it can."""
    if not isinstance(loader, DataLoader):
        return f"{type(loader).__name__} is no DataLoader of torch's"
    if hasattr(type(loader), "begin_pass"):
        return "flatout makes its batches (flatout.explain says how)"
    if type(loader).__iter__ is not DataLoader.__iter__:
        return f"{type(loader).__name__} has an __iter__ of its own"
    return ""
