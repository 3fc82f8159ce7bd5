"""Calls of a step whose result comes sooner in another form: both are timed on other numbers of the same shapes.

Convolutions with long kernels, distances from all differences, convolutions of single points after an enlargement,
products with a matrix that is nearly all zeros, and products of several matrices from the wrong end.
One step is watched by a dispatch mode, on the CPU, in a deep run, where nothing is compiled; the costliest calls are
timed in both ways when the script has ended, with their backward passes where gradients are asked for.
"""

import contextlib
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.seams import Seams
from flatout.probe.core.user_places import caller
from flatout.probe.forward.form_trials import FormTrial, convolution, enlargement, timed
from flatout.probe.forward.pairwise_differences import PairsFollowed
from flatout.probe.forward.product_chains import ProductChains
from flatout.probe.forward.zero_products import ZeroProducts
from flatout.probe.model.step_stretch import StepStretch
from flatout.schema.run import Frame, SlowForm

__all__ = ["PROBE", "FormWatch"]

_AT_STEP = 6
_TIMED = 4  # calls that are timed
_WORTH_NS = 300_000
_MOST_BYTES = 512 * 2**20  # of all that is made on the way
_MOST_OPERATIONS = 50_000
_TAPS = {1: 96, 2: 121, 3: 343}  # of a kernel, by its dimensions


class FormWatch:
    """Watches one step."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._stretch = StepStretch(event_log)
        self._steps = 0
        self._pass: _Pass | None = None
        self._found: tuple[SlowForm, ...] = ()
        self.around = self._stretch.around
        self.called = self._stretch.called
        self.backward = self._stretch.leave

    def install(self, seams: Seams) -> None:
        """Be told where stretches of a step begin and end."""
        self._stretch.install()

    def step(self, *_: object) -> None:
        """A step is over."""
        self._steps += 1
        if self._steps == _AT_STEP:
            self._pass = _Pass(self._stretch)
            self._stretch.begin(self._pass)
        elif self._steps == _AT_STEP + 1:
            self._stretch.begin(None)

    def stop(self) -> None:
        """The last step is over."""
        self._stretch.stop()

    def measure(self) -> None:
        """Time the costliest calls in both ways."""
        calls = self._pass.calls() if self._pass is not None else []
        groups: dict[tuple[Any, ...], list[_Call]] = defaultdict(list)
        for call in calls:
            groups[call.place, call.operation, call.trial.learns].append(call)
        costly = sorted(groups.values(), key=lambda some: -sum(call.taken for call in some))[:_TIMED]
        for some in costly:
            if sum(call.taken for call in some) >= _WORTH_NS:
                with contextlib.suppress(Exception):  # out of memory, say
                    self._time(some)

    def _time(self, some: "list[_Call]") -> None:
        longest = max(some, key=lambda call: call.taken)
        measured = timed(longest.trial) if longest.num_bytes <= _MOST_BYTES else None
        if measured is None:
            return
        self._found += (
            SlowForm(
                place=longest.place,
                operation=longest.operation,
                instead=measured.instead,
                calls=len(some),
                seconds=sum(call.taken for call in some) / 1e9,
                n=measured.n,
                forward_s=measured.forward_s,
                alone_s=measured.alone_s,
                other_s=measured.other_s,
                with_backward=any(longest.trial.learns) and not longest.trial.picked,
                picked=longest.trial.picked and any(longest.trial.learns),
                shapes=longest.trial.shapes,
                dtype=str(longest.trial.dtype).removeprefix("torch."),
            ),
        )

    def facts(self) -> tuple[SlowForm, ...]:
        """Return what was timed, the costliest first."""
        return self._found


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that may have another form."""

    place: Frame | None
    operation: str
    trial: FormTrial
    taken: int
    num_bytes: int


@dataclass(slots=True)
class _Enlarged:
    """The result of an enlargement, and its only use."""

    place: Frame | None
    source: Any  # shape, type and whether it learns, of a tensor that may be gone
    enlarge: Callable[[Any], Any]
    taken: int
    num_bytes: int
    channels: int
    uses: int = 0
    mixed: _Call | None = None


class _Pass(TorchDispatchMode):
    """The operations of one step, as far as they may have another form."""

    def __init__(self, stretch: StepStretch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stretch = stretch
        self._seen = 0
        self._long: list[_Call] = []
        self._pairs = PairsFollowed()
        self._zeros = ZeroProducts()
        self._products = ProductChains()
        self._enlarged: dict[int, tuple[weakref.ref[Any], _Enlarged]] = {}
        self._all: list[_Enlarged] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and note it if it may have another form."""
        start = perf_counter_ns()
        result = func(*args, **(kwargs or {}))
        taken = perf_counter_ns() - start
        if self._stretch.is_open and self._seen < _MOST_OPERATIONS:
            self._seen += 1
            with contextlib.suppress(Exception):  # another form of the operation: a probe must not end the script
                self._note(func, args, kwargs or {}, result, taken)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any, taken: int) -> None:
        name = func._overloadpacket.__name__
        self._use_enlarged(name, args, result, taken)
        if name == "convolution":
            self._convolution(args, result, taken)
        elif name.startswith("upsample_"):
            self._enlarge(func, args, kwargs, result, taken)
        self._pairs.note(name, args, kwargs, result, taken, lambda: caller(5))
        self._zeros.note(name, args, result, taken, lambda: caller(4))
        self._products.note(name, args, result, taken, lambda: caller(5))

    def _convolution(self, args: Any, result: Any, taken: int) -> None:
        x, weight, bias, stride, padding, dilation, transposed, _, groups = args
        taps = prod(weight.shape[2:])
        if transposed or max(dilation) > 1 or taps < _TAPS.get(weight.dim() - 2, 1 << 30):
            return
        if x.dtype not in (torch.float32, torch.float64) or taken < _WORTH_NS / 10:
            return
        learns = _learns(x, weight, bias)
        trial = convolution(x, weight, bias, stride, padding, groups, learns)
        size = "x".join(map(str, weight.shape[2:]))
        name = f"conv{weight.dim() - 2}d with a kernel of {size}"
        num_bytes = 4 * (x.nbytes + result.nbytes + weight.nbytes * prod(x.shape[2:]) // taps)
        self._long.append(_Call(caller(4), name, trial, taken, num_bytes))

    def _enlarge(self, func: Any, args: Any, kwargs: Any, result: Any, taken: int) -> None:
        x = args[0]
        if result.numel() <= x.numel():
            return
        rest = args[1:]
        made = _Enlarged(caller(4), x.shape, lambda x: func(x, *rest, **kwargs), taken, result.nbytes, x.shape[1])
        made.source = x.detach()[:0], x.shape, x.requires_grad and torch.is_grad_enabled()
        self._all.append(made)
        self._enlarged[id(result)] = weakref.ref(result), made

    def _use_enlarged(self, name: str, args: Any, result: Any, taken: int) -> None:
        for given in args[0] if args and isinstance(args[0], (list, tuple)) else args:
            ref, made = self._enlarged.get(id(given), (None, None))
            if ref is None or made is None or ref() is not given or name in ("detach", "alias"):
                continue
            made.uses += 1
            weight = args[1] if name == "convolution" else None
            if weight is not None and given is args[0] and _is_pointwise(args) and len(weight) < made.channels:
                made.mixed = self._mixed(made, weight, args[2], taken)

    def _mixed(self, made: _Enlarged, weight: Any, bias: Any, taken: int) -> _Call:
        like, shape, learns = made.source
        x = like.new_empty(1).expand(shape)
        asked = (learns, *_learns(weight, bias))
        trial = enlargement(x, made.enlarge, weight, bias, asked)
        words = f"enlarging {made.channels} channels, of which a convolution of single points makes {len(weight)},"
        return _Call(made.place or caller(5), words, trial, made.taken + taken, 4 * made.num_bytes)

    def calls(self) -> list[_Call]:
        """Return the calls that may have another form."""
        mixed = [made.mixed for made in self._all if made.mixed is not None and made.uses == 1]
        pairs = []
        for found in self._pairs.found:
            trial = found.trial()
            if trial is not None:
                rows, width = found.rows, found.width
                words = f"all {rows[0]} x {rows[1]} differences of {width} numbers"
                size = 4 * found.batch * rows[0] * rows[1] * width * found.dtype.itemsize
                pairs.append(_Call(found.place, words, trial, found.taken, size))
        zeros = [_Call(each.place, each.words, each.trial, each.taken, each.num_bytes) for each in self._zeros.found]
        chains = [
            _Call(each.place, each.words, each.trial, each.taken, each.num_bytes) for each in self._products.found
        ]
        return [*self._long, *mixed, *pairs, *zeros, *chains]


def _learns(*given: Any) -> tuple[bool, ...]:
    """Return which of the tensors that are there ask for gradients, here and now."""
    return tuple(each.requires_grad and torch.is_grad_enabled() for each in given if each is not None)


def _is_pointwise(args: Any) -> bool:
    weight, stride, padding, transposed, groups = args[1], args[3], args[4], args[6], args[8]
    plain = not transposed and groups == 1 and max(stride) == 1 and max(padding) == 0
    return plain and prod(weight.shape[2:]) == 1


PROBE = Probe(
    name="slow-forms",
    make=lambda deep: FormWatch(deep.event_log),
    install=FormWatch.install,
    step=FormWatch.step,
    called=lambda watch, module, given: watch.called(module),
    around=lambda watch, module, inner: watch.around(module, inner),
    backward=lambda watch, tensor: watch.backward(),
    stop=FormWatch.stop,
    measure=lambda watch, causes: watch.measure(),
    trials={"slow_forms": FormWatch.facts},
    after=("slow-reductions",),
)
