"""What the device did in a few steps of a deep run: every kernel and every copy from when to when, by torch's profiler.

Kineto, the recorder inside `torch.profiler`, is asked for the device's own events alone; it counts its times from the
epoch, and they are put on the clock that the steps have. Where the script profiles itself nothing is recorded: torch
has one profiler at a time, and the script's would fail.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple

import torch
from torch._C._autograd import DeviceType, _profiler_enabled

from flatout.probe.core.seams import Hits, Seams
from flatout.schema.run import DeviceKernel, DeviceWork, Span

__all__ = ["DEVICE", "DeviceEvent", "DeviceTrace", "device_work", "drawn"]

DEVICE = "device"

_LONGEST, _NAME = 8, 120  # kernels that are named; characters of a name
_MOST_SPANS = 600  # of one row
_COPIES = {
    "Memcpy HtoD": "copy to the device",
    "Memcpy DtoH": "copy to the host",
    "Memcpy DtoD": "copy on the device",
    "Memcpy PtoP": "copy between devices",
    "Memset": "filling",
}
_KERNEL = "kernel"


class DeviceEvent(NamedTuple):
    """One piece of work of the device, on the host's clock."""

    stream: int
    name: str
    start_ns: int
    wall_ns: int

    @property
    def kind(self) -> str:
        """Return "kernel", or what is copied to where."""
        return next((kind for begin, kind in _COPIES.items() if self.name.startswith(begin)), _KERNEL)

    @property
    def end_ns(self) -> int:
        """Return when it ended."""
        return self.start_ns + self.wall_ns


class DeviceTrace:
    """Records the device's work between `start` and `stop`."""

    def __init__(self, profiler: Callable[[], Any] | None = None) -> None:
        """Record nothing yet; `profiler` makes what records, torch's own where none is given."""
        self._make = profiler or _torch_profiler
        self._profiler: Any = None
        self._events: list[DeviceEvent] = []
        self._tried = self._making = False
        self._reason = ""

    @property
    def reason(self) -> str:
        """Return why nothing was recorded, an empty string where no device is in use."""
        return self._reason if torch.cuda.is_initialized() else ""

    def install(self, seams: Seams) -> None:
        """Note where the script makes a profiler of its own."""
        seams.wrap("torch.profiler.profiler:_KinetoProfile.__init__", self._made)
        seams.wrap("torch.autograd.profiler:profile.__init__", self._made)

    def _made(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def init(profiler: Any, *args: Any, **kwargs: Any) -> None:
            if not self._making:
                hits.count += 1
                self._leave()
            original(profiler, *args, **kwargs)

        return init

    def _leave(self) -> None:
        """Record nothing, now or later: the script's own profiler needs to be the only one."""
        self.stop()
        self._events, self._tried, self._reason = [], True, "the script makes a profiler of its own"

    def start(self) -> None:
        """Record from now on, where a CUDA device is in use and nobody profiles already; only once."""
        if self._tried or not torch.cuda.is_initialized() or _profiler_enabled():
            return
        self._tried = self._making = True
        with self._failing():
            profiler = self._make()
            profiler.start()
            self._profiler = profiler
        self._making = False

    def stop(self) -> None:
        """Record no more, and keep what was recorded."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        with self._failing():
            profiler.stop()
            since_epoch_ns = time_ns() - perf_counter_ns()
            self._events = [
                DeviceEvent(
                    event.device_resource_id(), event.name(), event.start_ns() - since_epoch_ns, event.duration_ns()
                )
                for event in profiler.profiler.kineto_results.events()
                if event.device_type() == DeviceType.CUDA and not event.is_user_annotation()
            ]

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Keep an error of the profiler, which other tools or a driver's settings may forbid, from the other probes."""
        try:
            yield
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]

    def within(self, steps: Sequence[Span]) -> list[DeviceEvent]:
        """Return what lies, at least in part, in the steps, the earliest first."""
        begin_ns = min((step.start_ns for step in steps), default=0)
        end_ns = max((step.start_ns + step.wall_ns for step in steps), default=0)
        found = [event for event in self._events if event.start_ns < end_ns and event.end_ns > begin_ns]
        return sorted(found, key=lambda event: event.start_ns)


def _torch_profiler() -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])


def device_work(events: Sequence[DeviceEvent], steps: Sequence[Span], reason: str = "") -> DeviceWork | None:
    """Return how long the device was busy in the steps, and with what; None where there is nothing to say.

    What runs at the same time on two streams is busy time once, and in the sums by kind twice.
    `reason`: why nothing was recorded.
    """
    if not events or not steps:
        return DeviceWork(num_steps=0, reason=reason) if reason else None
    busy = (_covered_ns(events, step.start_ns, step.start_ns + step.wall_ns) for step in steps)  # not what lies between
    by_kind: dict[str, int] = defaultdict(int)
    kernels: dict[str, list[int]] = defaultdict(list)
    for event in events:
        by_kind[event.kind] += event.wall_ns
        if event.kind == _KERNEL:
            kernels[event.name].append(event.wall_ns)
    longest = sorted(kernels.items(), key=lambda item: -sum(item[1]))[:_LONGEST]
    return DeviceWork(
        num_steps=len(steps),
        wall_s=sum(step.wall_ns for step in steps) / 1e9,
        busy_s=sum(busy) / 1e9,
        num_kernels=sum(map(len, kernels.values())),
        seconds={kind: ns / 1e9 for kind, ns in by_kind.items()},
        longest=tuple(
            DeviceKernel(name=name[:_NAME], count=len(walls), seconds=sum(walls) / 1e9) for name, walls in longest
        ),
    )


def _covered_ns(events: Iterable[DeviceEvent], begin_ns: int, end_ns: int) -> int:
    """Return for how long at least one of the events, the earliest first, was under way."""
    covered, reached = 0, begin_ns
    for event in events:
        end = min(end_ns, event.end_ns)
        covered += max(0, end - max(reached, event.start_ns))
        reached = max(reached, end)
    return covered


def drawn(events: Iterable[DeviceEvent]) -> list[Span]:
    """Return the spans to draw: one row a stream; of neighbours of a kind those closest to each other become one."""
    streams: dict[int, list[DeviceEvent]] = defaultdict(list)
    for event in events:
        streams[event.stream].append(event)
    spans: list[Span] = []
    for number, stream in enumerate(sorted(streams, key=lambda stream: -len(streams[stream]))):
        lane = DEVICE if number == 0 else f"{DEVICE}, stream {stream}"
        spans += _merged(lane, streams[stream])
    return spans


def _merged(lane: str, events: Sequence[DeviceEvent]) -> list[Span]:
    """Return the events of a stream as spans, joined over the smallest gaps until few enough are left."""
    gaps = sorted(
        (following.start_ns - event.end_ns, number)
        for number, (event, following) in enumerate(pairwise(events), start=1)
        if event.kind == following.kind
    )
    joined = {number for _, number in gaps[: max(0, len(events) - _MOST_SPANS)]}
    spans: list[Span] = []
    for number, event in enumerate(events):
        if number in joined:
            start_ns = spans[-1].start_ns
            wall_ns = max(spans[-1].wall_ns, event.end_ns - start_ns)
            spans[-1] = Span(lane=lane, name=event.kind, start_ns=start_ns, wall_ns=wall_ns)
        else:
            spans.append(Span(lane=lane, name=event.kind, start_ns=event.start_ns, wall_ns=event.wall_ns))
    return spans
