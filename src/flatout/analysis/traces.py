"""What an execution of a verification wrote down, read back: intervals between optimizer steps, replayed steps."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Deviation", "Interval", "Replayed", "Trace", "TraceRow", "read_trace"]


@dataclass(frozen=True, slots=True)
class TraceRow:
    """How far one tensor is off; `error` is None for one that is not there."""

    name: str
    error: float | None
    cosine: float
    scale: float
    weight: float  # its share of the squared norm of all
    of_all: float = 0.0  # its error relative to the norm of all


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How far tensors are off others, one by one and all together."""

    rows: tuple[TraceRow, ...] = ()
    error: float = 0.0
    cosine: float = 1.0
    scale: float = 1.0
    extra: tuple[str, ...] = ()  # tensors that were not wanted

    def errors(self) -> dict[str, float]:
        """Return the error of each tensor that is there."""
        return {row.name: row.error for row in self.rows if row.error is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What happened from the end of one optimizer step to the end of the next."""

    step: int
    optimizer: int = 0
    update: float = 0.0  # norm of the change of all parameters
    prints: str = ""  # 16 digits a tensor, after the step
    names: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()  # exact, as hexadecimal floats
    missing: tuple[int, ...] = ()  # parameters without a gradient when the optimizer acted
    groups: tuple[Mapping[str, Any], ...] = ()
    clips: tuple[tuple[Any, ...], ...] = ()  # function, limit, norm afterwards, number of gradients
    batches: tuple[tuple[Any, ...], ...] = ()  # loader, pass, number, samples, a print a sample, print of the rest
    calls: tuple[tuple[Any, ...], ...] = ()  # module, parts in training mode, parts, gradients, then as of a batch
    starts: tuple[tuple[Any, ...], ...] = ()  # loader, pass, print of the random state, length
    ends: tuple[tuple[Any, ...], ...] = ()  # loader, pass, batches, print of the random state
    changed: tuple[tuple[Any, ...], ...] = ()  # batches that changed after the script had received them
    printed: tuple[str, ...] = ()  # lines
    saved: tuple[str, ...] = ()  # a print of each state that was saved

    @property
    def loss(self) -> float:
        """Return the sum of the losses."""
        return math.fsum(map(float.fromhex, self.losses)) if self.finite else math.nan

    @property
    def finite(self) -> bool:
        """Return whether every loss is a number."""
        return all(math.isfinite(float.fromhex(loss)) for loss in self.losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One captured step, gone through from the baseline's state."""

    step: int
    optimizers: tuple[int, int] = (0, 0)
    gradients: Deviation = Deviation()
    updates: Deviation = Deviation()
    buffers: Deviation = Deviation()
    start: Deviation = Deviation()
    against_reference: Deviation | None = None
    not_finite: tuple[str, ...] = ()
    losses: tuple[float, float] = (0.0, 0.0)  # sums: found, the baseline's


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One execution of a verification."""

    role: str
    intervals: tuple[Interval, ...] = ()
    replays: Mapping[int, Replayed] = field(default_factory=dict)
    references: Mapping[int, Deviation] = field(default_factory=dict)  # of the baseline against float64
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    dry: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    fixes: tuple[Mapping[str, Any], ...] = ()  # of each: "hits" by name, "failure"
    second_epoch: bool = False  # one has begun, after a whole one
    complete: bool = False  # it wrote its end
    reason: str = ""  # of its end: "steps", "script ended", "script failed", ...
    error: str = ""
    troubles: tuple[str, ...] = ()


def read_trace(role: str, records: Iterable[Mapping[str, Any]]) -> Trace:
    """Return the Trace that the records of a part file make up; unknown kinds are passed over.

    Raises:
        KeyError, TypeError, ValueError: when a record does not have the form of its kind.
    """
    state = _Reading()
    fields: dict[str, Any] = {}
    for record in records:
        kind = record["kind"]
        if kind == "interval":
            state.take_interval(record)
        elif kind == "replay":
            state.replays[int(record["step"])] = _replayed(record)
        elif kind == "reference" and record["double"]:
            state.references[int(record["step"])] = _deviation(record["gradients"])
        elif kind == "checkpoint":
            fields["checkpoint"] = record["holds"]
        elif kind == "dry":
            state.dry[int(record["loader"])] = record
        elif kind == "verified":
            fields |= {"fixes": tuple(record["fixes"]), "second_epoch": record["second_epoch"], "complete": True}
        elif kind == "trouble":
            state.troubles.append(str(record["text"]))
        elif kind == "end":
            fields |= {"reason": record["value"]["reason"], "error": record["value"]["error"]}
    return Trace(
        role=role,
        intervals=tuple(state.intervals),
        replays=state.replays,
        references=state.references,
        dry=state.dry,
        troubles=tuple(state.troubles),
        **fields,
    )


class _Reading:
    """What has been read so far; settings and names are written only where they change."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []
        self.replays: dict[int, Replayed] = {}
        self.references: dict[int, Deviation] = {}
        self.dry: dict[int, Mapping[str, Any]] = {}
        self.troubles: list[str] = []
        self._latest: dict[tuple[str, int], tuple[Any, ...]] = {}

    def take_interval(self, record: Mapping[str, Any]) -> None:
        optimizer = int(record["optimizer"])
        for name in ("groups", "names"):
            if name in record:
                self._latest[name, optimizer] = tuple(record[name])
        several = ("clips", "batches", "calls", "starts", "ends", "changed")
        told = {name: tuple(map(tuple, record.get(name, ()))) for name in several}
        self.intervals.append(
            Interval(
                step=int(record["step"]),
                optimizer=optimizer,
                update=float(record["update"]),
                prints=str(record["prints"]),
                losses=tuple(record.get("losses", ())),
                missing=tuple(record.get("missing", ())),
                groups=self._latest.get(("groups", optimizer), ()),
                names=self._latest.get(("names", optimizer), ()),
                printed=tuple(map(str, record.get("printed", ()))),
                saved=tuple(map(str, record.get("saved", ()))),
                clips=told["clips"],
                batches=told["batches"],
                calls=told["calls"],
                starts=told["starts"],
                ends=told["ends"],
                changed=told["changed"],
            )
        )


def _replayed(record: Mapping[str, Any]) -> Replayed:
    found, wanted = (math.fsum(map(float.fromhex, losses)) for losses in record["losses"])
    against = record.get("against_reference")
    return Replayed(
        step=int(record["step"]),
        optimizers=(int(record["optimizer"][0]), int(record["optimizer"][1])),
        gradients=_deviation(record["gradients"]),
        updates=_deviation(record["updates"]),
        buffers=_deviation(record["buffers"]),
        start=_deviation(record["start"]) if "start" in record else Deviation(),
        against_reference=None if against is None else _deviation(against),
        not_finite=tuple(record["not_finite"]),
        losses=(found, wanted),
    )


def _deviation(body: Mapping[str, Any]) -> Deviation:
    error, cosine, scale = body["all"]
    return Deviation(
        rows=tuple(TraceRow(*row) for row in body["rows"]),
        error=error,
        cosine=cosine,
        scale=scale,
        extra=tuple(body["extra"]),
    )
