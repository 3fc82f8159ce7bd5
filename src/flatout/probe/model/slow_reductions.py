"""Reductions of the forward pass that torch does slowly on the CPU, and what the same costs in other words.

Over a dimension that is not the last one in memory, `norm`, `var`, `std` and `argmax` go number by number: 20 to 100
times as slow as sums and maxima that come to the same (torch 2.13, one core of an AMD EPYC: the norm of 2 x 1,638,400
numbers over the first dimension 143 ms, their squares' sum 2.4). One forward pass is watched by a dispatch mode, on the
CPU, in a deep run, where nothing is compiled; the costliest are then timed again, both ways, on numbers of their shape.
"""

import contextlib
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import caller
from flatout.probe.model.forward_pass import plain_on_cpu, within
from flatout.schema.run import Frame, SlowReduction

__all__ = ["PROBE", "ReductionWatch"]

_AT_STEP = 5
_TIMED, _TIMES = 3, 3  # lines that are timed again, and how often
_WORTH_NS = 200_000
_MOST_BYTES = 128 * 2**20
_LONGEST_S = 0.5  # of timing one way

_Other = Callable[[torch.Tensor, Any], torch.Tensor]


def _norm(x: torch.Tensor, dim: Any) -> torch.Tensor:
    return x.square().sum(dim).sqrt()


def _var(x: torch.Tensor, dim: Any) -> torch.Tensor:
    return (x - x.mean(dim, keepdim=True)).square().sum(dim)


_DIVISORS = {0: "n", 1: "(n - 1)"}  # by the correction
_OTHERS: dict[str, tuple[int, _Other, str]] = {  # where the dimension is among the arguments
    "linalg_vector_norm": (2, _norm, "x.square().sum(dim).sqrt()"),
    "var": (1, _var, "(x - x.mean(dim, keepdim=True)).square().sum(dim) / DIVISOR"),
    "std": (1, _var, "the root of (x - x.mean(dim, keepdim=True)).square().sum(dim) / DIVISOR"),
    "argmax": (1, lambda x, dim: x.max(dim)[1], "x.max(dim).indices"),
    "argmin": (1, lambda x, dim: x.min(dim)[1], "x.min(dim).indices"),
}


class _Call(NamedTuple):
    """A reduction: which, of what, over what, and how long it took."""

    func: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    rest: tuple[Any, ...]
    options: dict[str, Any]
    dim: Any
    taken: int

    @property
    def name(self) -> str:
        """Return torch's name for it."""
        return str(self.func._overloadpacket.__name__)

    @property
    def instead(self) -> str:
        """Return what comes to the same."""
        return _OTHERS[self.name][2].replace("DIVISOR", _DIVISORS.get(_correction(self.rest, self.options), ""))

    def timed(self) -> tuple[float, float]:
        """Return the seconds of this and of what comes to the same, on other numbers."""
        place = torch.arange(sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1)
        x = (place % 97).to(self.dtype).as_strided(self.shape, self.strides)
        other = _OTHERS[self.name][1]
        return _least_s(lambda: self.func(x, *self.rest, **self.options)), _least_s(lambda: other(x, self.dim))


class ReductionWatch:
    """Watches one forward pass."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._steps = 0
        self._pass: _Pass | None = None

    def step(self, *_: object) -> None:
        """A step is over."""
        self._steps += 1

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or for one call of the training what watches while `inner` runs."""
        if self._pass is not None or self._steps < _AT_STEP or not plain_on_cpu(module, self._event_log):
            return inner
        self._pass = _Pass()
        return within(self._pass, inner)

    def facts(self) -> tuple[SlowReduction, ...]:
        """Return the lines with such reductions, the costliest first, each timed both ways."""
        watched = self._pass
        if watched is None:
            return ()
        found = []
        costs = sorted(watched.costs.items(), key=lambda cost: -sum(call.taken for call in cost[1]))
        for place, calls in costs[:_TIMED]:
            longest, taken = max(calls, key=lambda call: call.taken), sum(call.taken for call in calls)
            with contextlib.suppress(Exception), torch.no_grad():  # out of memory, say: a probe ends no script
                took_s, other_s = longest.timed() if taken > _WORTH_NS else (0.0, 0.0)
                found.append(
                    SlowReduction(
                        place=place,
                        operation=longest.name,
                        instead=longest.instead,
                        seconds=taken / 1e9,
                        whole_s=watched.whole_ns / 1e9,
                        alone_s=took_s,
                        other_s=other_s,
                        shape=longest.shape,
                        dtype=str(longest.dtype).removeprefix("torch."),
                    )
                )
        return tuple(found)


class _Pass(TorchDispatchMode):
    """The reductions of one pass, by line."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.whole_ns = 0
        self.costs: dict[Frame | None, list[_Call]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and note it if it is one of those."""
        start = perf_counter_ns()
        result = func(*args, **(kwargs or {}))
        taken = perf_counter_ns() - start
        self.whole_ns += taken
        if func._overloadpacket.__name__ in _OTHERS:
            with contextlib.suppress(Exception):  # another form of the operation: a probe must not end the script
                self._note(func, args, kwargs or {}, taken)
        return result

    def _note(self, func: Any, args: Any, options: dict[str, Any], taken: int) -> None:
        x, rest = args[0], tuple(args[1:])
        at = _OTHERS[func._overloadpacket.__name__][0]
        dim = rest[at - 1] if len(rest) >= at else options.get("dim")
        other_norm = at == 2 and (rest[0] if rest else options.get("ord", 2)) != 2
        unknown = other_norm or _correction(rest, options) not in _DIVISORS
        if dim is None or dim == [] or unknown or x.is_complex() or x.nbytes > _MOST_BYTES:
            return
        call = _Call(func, tuple(x.shape), x.stride(), x.dtype, rest, options, dim, taken)
        self.costs.setdefault(caller(2), []).append(call)


def _correction(rest: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return what is taken off the number of values before a variance is divided by it; 1 is torch's own choice."""
    unbiased = rest[1] if len(rest) > 1 and isinstance(rest[1], bool) else True
    given = options.get("correction")
    return int(unbiased) if given is None else given


def _least_s(work: Callable[[], object]) -> float:
    taken: list[float] = []
    while len(taken) < _TIMES and sum(taken) < _LONGEST_S:
        start = perf_counter_ns()
        work()
        taken.append((perf_counter_ns() - start) / 1e9)
    return min(taken)


PROBE = Probe(
    name="slow-reductions",
    make=lambda deep: ReductionWatch(deep.event_log),
    step=ReductionWatch.step,
    around=ReductionWatch.around,
    causes={"reductions": ReductionWatch.facts},
    after=("loop-invariant",),
)
