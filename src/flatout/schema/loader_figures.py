"""What a measurement of a data loader by itself found, and how it is printed.

Every figure is a median with the lowest and the highest of `n` blocks of batches: a machine that others use shows in
their distance. Standard library only: the parent process reads and prints these.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flatout.schema.facts import Frame
from flatout.units import format_bytes, format_ms, format_share

__all__ = ["Figure", "FileRate", "LoaderFigures", "LoaderLine", "LoaderPauses", "LoaderStage", "WorkerSetting"]

_CLEARLY = 1.05  # a setting is better than the loader's own from here on, if their ranges do not meet
_BUSY = 0.05  # share of all cores that other programs use, from which it is said


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure: the median of `n` blocks, with the lowest and the highest."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure | None":
        """Return the figure of `values`, None where there are none."""
        return cls(statistics.median(values), min(values), max(values), len(values)) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStage:
    """A part of making a batch in one process."""

    name: str  # sampler, fetch, collate, pin
    ms: Figure  # of a batch
    share: float  # of making a batch, 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderLine:
    """A line of the user's own code that making samples spends its time in."""

    place: Frame
    code: str  # the line as it stands in the file, "" where that cannot be read
    share: float  # of making a batch, 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderPauses:
    """Waits for a batch that lasted five times as long as usual, and 10 ms at least."""

    count: int
    longest_s: float
    share: float  # of the time that all batches took
    n: int  # batches that were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRate:
    """What the disk or network gives of the files that samples were read from, read one after another."""

    files: int  # that were read for it
    num_bytes: int
    disk_mb_s: Figure | None  # after the system was asked to forget them
    memory_mb_s: Figure | None  # read once more
    read_per_batch: float  # bytes that the loader reads of files for a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetting:
    """A number of workers, tried in turns with the others."""

    workers: int
    samples_s: Figure | None  # None where it failed
    first_batch_s: Figure | None
    own: bool = False  # the loader's own number
    trouble: str = ""  # why it failed


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFigures:
    """What `flatout.measure_loader` found. `print` shows it whole."""

    name: str  # of the data set's class, or the loader's
    created_at: Frame | None = None
    batch_size: int = 0  # 0: not known
    workers: int = 0
    batches: int = 0  # that were drawn for the speed
    samples_s: Figure | None = None
    mb_s: Figure | None = None  # of the tensors in the batches
    first_batch_s: Figure | None = None  # of each pass, from its beginning
    pauses: LoaderPauses | None = None
    made_ms: Figure | None = None  # making a batch in one process
    waiting: float = 0.0  # share of that in which no processor was used
    stages: tuple[LoaderStage, ...] = ()
    lines: tuple[LoaderLine, ...] = ()
    cores: int = 0
    cores_samples_s: Figure | None = None  # what they could give: by the processor time of a batch
    files: FileRate | None = None
    settings: tuple[WorkerSetting, ...] = ()
    others: float = 0.0  # share of all cores that other programs used meanwhile
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> WorkerSetting | None:
        """The setting to use: the fastest if it is clearly faster than the loader's own, else the loader's own."""
        tried = [each for each in self.settings if each.samples_s is not None]
        own = next((each for each in tried if each.own), None)
        if not tried:
            return None
        fastest = max(tried, key=lambda each: each.samples_s.median if each.samples_s else 0.0)
        return fastest if own is None or _is_clearly_faster(fastest, own) else own

    def __str__(self) -> str:
        """Return all of it as text."""
        return "\n".join([self._title(), *(f"  {label:<13} {text}" for label, text in self._rows())])

    def _title(self) -> str:
        batch = f", batches of {self.batch_size}" if self.batch_size else ""
        at = f" ({_where(self.created_at)})" if self.created_at else ""
        return f"{self.name}{batch}, {_workers(self.workers)}{at}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from self._speed()
        yield from self._making()
        yield from self._could_give()
        for place, each in enumerate(self.settings):
            yield "workers" if not place else "", _setting(each)
        if self.settings:
            yield "best", self._verdict()
        if self.others >= _BUSY:
            yield "busy machine", f"other programs used {format_share(self.others)} of all cores meanwhile"
        for note in self.notes:
            yield "note", note

    def _speed(self) -> Iterator[tuple[str, str]]:
        if self.samples_s is not None:
            yield "speed", f"{_figure(self.samples_s, _number, ' samples/s')}, {self.batches} batches"
        if self.mb_s is not None:
            yield "", _figure(self.mb_s, _number, " MB/s")
        if self.first_batch_s is not None:
            yield "first batch", _figure(self.first_batch_s, _seconds)
        if self.pauses is not None and self.pauses.count:
            found = self.pauses
            longest, share = _seconds(found.longest_s), format_share(found.share)
            yield "pauses", f"{found.count} in {found.n} batches, the longest {longest}: {share} of the time"
        elif self.pauses is not None:
            yield "pauses", f"none in {self.pauses.n} batches"

    def _making(self) -> Iterator[tuple[str, str]]:
        if self.made_ms is None:
            return
        waits = f"; {format_share(self.waiting)} of it waiting" if self.waiting >= 0.1 else ""
        yield "a batch takes", f"{_figure(self.made_ms, format_ms)} in one process{waits}"
        for stage in self.stages:
            yield "", f"{format_share(stage.share):>4} {stage.name:<8} {_figure(stage.ms, format_ms)}"

        for place, line in enumerate(self.lines):
            label = "" if place else "lines"
            yield label, f"{format_share(line.share):>4} {_where(line.place)}  {line.code}".rstrip()

    def _could_give(self) -> Iterator[tuple[str, str]]:
        if self.cores_samples_s is not None:
            rate = _figure(self.cores_samples_s, _number, " samples/s")
            yield "cores", f"{self.cores} could give {rate}, by the processor time of a batch"
        files = self.files
        if files is None:
            return
        number = f"{files.files} file{'s' if files.files != 1 else ''}, {format_bytes(files.num_bytes)}"
        if files.disk_mb_s is not None:
            yield "disk", f"gives {_figure(files.disk_mb_s, _number, ' MB/s')} ({number})"
        if files.memory_mb_s is not None:
            yield "", f"{_figure(files.memory_mb_s, _number, ' MB/s')} of what the system still holds in memory"
        yield "", f"a batch reads {format_bytes(files.read_per_batch)}"

    def _verdict(self) -> str:
        best = self.best
        if best is None:
            return "no setting could be measured"
        if best.own:
            return f"{_workers(best.workers)}, as it is: no other number was clearly faster"
        own = next((each.samples_s for each in self.settings if each.own and each.samples_s), None)
        if own is None or best.samples_s is None:
            return _workers(best.workers)
        return f"{_workers(best.workers)}: {best.samples_s.median / own.median:.2f} times the speed of {self.workers}"


def _is_clearly_faster(one: WorkerSetting, other: WorkerSetting) -> bool:
    if one.samples_s is None or other.samples_s is None:
        return False
    return one.samples_s.median >= _CLEARLY * other.samples_s.median and one.samples_s.low > other.samples_s.high


def _setting(each: WorkerSetting) -> str:
    own = "  <- as it is" if each.own else ""
    if each.samples_s is None:
        return f"{each.workers:>2}: {each.trouble or 'not measured'}{own}"
    first = f", first batch {_seconds(each.first_batch_s.median)}" if each.first_batch_s else ""
    return f"{each.workers:>2}: {_figure(each.samples_s, _number, ' samples/s')}{first}{own}"


def _figure(figure: Figure, shown: Callable[[float], str], unit: str = "") -> str:
    spread = f"{shown(figure.low)} to {shown(figure.high)}, " if figure.n > 1 else ""
    return f"{shown(figure.median)}{unit} ({spread}n={figure.n})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _seconds(value: float) -> str:
    return format_ms(1e3 * value)


def _workers(number: int) -> str:
    return f"{number} worker{'s' if number != 1 else ''}" if number else "no workers"


def _where(place: Frame | None) -> str:
    return f"{os.path.basename(place.file)}:{place.line}" if place else ""
