"""Calls of modules in a step whose results no update of a weight depends on: an evaluation in each step.

Two steps are run under a dispatch mode, backward passes and all, on the CPU, in a deep run, where nothing is compiled.
What a call of an outermost module makes and returns is followed through all operations: to gradients that an optimizer
reads, to what outlives the step, and to NumPy and lists, where it is lost from sight and counts as used. A single
number that is read (a loss, a count) is no use; an index that was chosen is.
"""

import contextlib
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import user_stack
from flatout.probe.model.step_stretch import StepStretch
from flatout.schema.run import Frame, UntrainedCalls

__all__ = ["PROBE", "CallsFollowed"]

_AFTER = (11, 12)  # steps, each of which another one is followed after
_MOST_CALLS, _MOST_TENSORS = 4096, 200_000
_SMALL = 64  # numbers of a tensor that may be a metric
_CHOOSES = frozenset(("argmax", "argmin", "multinomial", "bernoulli", "topk", "sort", "argsort", "nonzero", "normal"))
_NORMALIZES = frozenset(("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"))
_LEAVES = ("numpy", "tolist", "__array__", "__dlpack__")  # methods of tensors


@dataclass(slots=True)
class _Call:
    """A call of an outermost module."""

    stack: tuple[Frame, ...]  # of the user's lines that led to it, the innermost first
    module: str
    with_grad: bool
    taken: int = 0  # by its operations, and by those on what it returned
    used: bool = False


class _Followed(TorchDispatchMode):
    """What the results of calls go into, in one step."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []
        self.whole_ns = 0  # of all operations
        self.inside: _Call | None = None  # the call that is under way
        self._later: dict[frozenset[int], int] = defaultdict(int)  # what operations take on what calls returned
        self._of: dict[int, tuple[weakref.ref[Any], frozenset[int], bool]] = {}  # calls of a tensor; whether chosen
        self._made: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and note what it was given."""
        begin = perf_counter_ns()
        result = func(*args, **(kwargs or {}))
        taken = perf_counter_ns() - begin
        self.whole_ns += taken
        if self.inside is not None:
            self.inside.taken += taken
        if len(self._made) < _MOST_TENSORS:
            with contextlib.suppress(Exception):  # tensors of any kind: a probe must not end the script
                self._note(func, args, kwargs or {}, result, taken)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any, taken: int) -> None:
        name = func._overloadpacket.__name__
        for each in _tensors(result):
            self._made.setdefault(id(each), weakref.ref(each))
        if not self.calls:
            return
        given = _tensors((args, kwargs))
        calls = frozenset().union(*(self.calls_of(each) for each in given))
        if self.inside is not None:  # the gradient of a mean needs what lies inside, and no value that was returned
            calls |= {len(self.calls) - 1}
        if not calls:
            return
        if self.inside is None:
            self._later[calls] += taken
        if name.lstrip("_") == "local_scalar_dense":
            if any(self._is_chosen(each) for each in given):
                self.use(calls)
            return
        self._follow(func, args, given, result, calls)

    def _follow(self, func: Any, args: Any, given: list[Any], result: Any, calls: frozenset[int]) -> None:
        name = func._overloadpacket.__name__
        chosen = name in _CHOOSES or (name in ("select", "view", "squeeze") and any(map(self._is_chosen, given)))
        for each in _tensors(result):
            self.mark(each, calls, chosen)
        if name in _NORMALIZES and args[5]:  # whose schemas do not tell that the running statistics are written
            self._write(args[3:5], calls)
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._write(value, calls)

    def _write(self, value: Any, calls: frozenset[int]) -> None:
        for each in _tensors(value):
            self.mark(each, calls, False)
            if not self._is_new(each) and each.numel() > _SMALL:  # a bank of features, a running centre
                self.use(calls)

    def _is_new(self, tensor: Any) -> bool:
        """Return whether a tensor was made in this step, or is a view of one that was."""
        root = tensor if tensor._base is None else tensor._base
        ref = self._made.get(id(root))
        return ref is not None and ref() is root

    def _is_chosen(self, tensor: Any) -> bool:
        ref, _, chosen = self._of.get(id(tensor), (None, None, False))
        return ref is not None and ref() is tensor and chosen

    def mark(self, tensor: Any, calls: frozenset[int], chosen: bool) -> None:
        """Say that a tensor depends on what these calls returned."""
        self._of[id(tensor)] = weakref.ref(tensor), self.calls_of(tensor) | calls, chosen

    def calls_of(self, tensor: Any) -> frozenset[int]:
        """Return the calls that a tensor depends on."""
        ref, calls, _ = self._of.get(id(tensor), (None, frozenset[int](), False))
        return calls if ref is not None and ref() is tensor else frozenset()

    def use(self, calls: Iterable[int]) -> None:
        """Say that what comes of these calls is used."""
        for number in calls:
            self.calls[number].used = True

    def entered(self, call: _Call) -> None:
        """A call begins."""
        self.calls.append(call)
        self.inside = call

    def left_call(self, result: Any) -> None:
        """The call that was entered has returned, or raised (None); without known tensors it counts as used."""
        assert self.inside is not None
        tensors = _tensors(result)
        self.inside.used |= not tensors
        for each in tensors:
            self.mark(each, frozenset((len(self.calls) - 1,)), False)
        self.inside = None

    def left(self) -> None:
        """The step after it is over, too: what is large and still there is kept for something."""
        for ref, calls, _ in list(self._of.values()):
            tensor = ref()
            if tensor is not None and tensor.numel() > _SMALL:
                self.use(calls)
        for calls, taken in self._later.items():
            if not any(self.calls[number].used for number in calls):
                self.calls[max(calls)].taken += taken


class CallsFollowed:
    """Follows what calls return, in two steps."""

    def __init__(self, event_log: EventLog) -> None:
        """Follow nothing yet."""
        self._event_log = event_log
        self._stretch = StepStretch(event_log, follows_input=True)
        self._steps = 0
        self._now: _Followed | None = None
        self._past: _Followed | None = None
        self._whole_ns = 0
        self._seen: list[dict[tuple[Frame | None, str], list[_Call]]] = []  # calls in vain, by where they come from

    def install(self, seams: Seams) -> None:
        """Be told of the steps of optimizers, and of what leaves torch."""
        self._stretch.install()
        register_optimizer_step_pre_hook(self._stepping)
        for name in _LEAVES:
            seams.wrap(f"torch:Tensor.{name}", self._leaving)

    def _leaving(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def leave(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._now is not None:
                hits.count += 1
                self._now.use(self._now.calls_of(tensor))
            return original(tensor, *args, **kwargs)

        return leave

    def _stepping(self, optimizer: Any, *_: Any) -> None:
        """An optimizer is about to read gradients; those of a step that its own beginning has just ended, too."""
        for followed in filter(None, (self._now, self._past)):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        followed.use(followed.calls_of(parameter.grad))

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is called in place of `inner`, the call of an outermost module."""
        inner = self._stretch.around(module, inner)
        now = self._now
        if now is None or len(now.calls) >= _MOST_CALLS:
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            stack = tuple(Frame(*each) for each in user_stack(sys._getframe(1)))
            now.entered(_Call(stack, type(module).__name__, torch.is_grad_enabled()))
            result = None
            try:
                result = inner(*args, **kwargs)
                return result
            finally:
                now.left_call(result)

        return call

    def step(self, step: Any, number: int) -> None:
        """A step is over."""
        if self._past is not None:
            self._take(self._past)
        self._past = None if self._stretch.batches.missed else self._now  # what a loader did with them is not known
        if self._now is not None:
            self._stretch.begin(None)
            self._now = None
        if number in _AFTER and not self._event_log.tracing.possible:
            self._now = _Followed()
            self._stretch.begin(self._now)

    def _take(self, followed: _Followed) -> None:
        followed.left()
        if not any(call.used for call in followed.calls):  # nothing reached an optimizer: it was not followed well
            return
        self._whole_ns += followed.whole_ns
        needed = {frame for call in followed.calls if call.used for frame in call.stack}
        found: dict[tuple[Frame | None, str], list[_Call]] = defaultdict(list)
        for call in followed.calls:
            own = [frame for frame in call.stack if frame not in needed]  # the outermost line that no used call passes
            if own and not call.used:
                found[own[-1], call.module].append(call)
        self._seen.append(dict(found))

    def stop(self) -> None:
        """The last step is over."""
        if self._past is not None:
            self._take(self._past)
        self._now = self._past = None
        self._stretch.stop()

    def facts(self) -> tuple[UntrainedCalls, ...]:
        """Return the calls that were needed in none of the steps that were followed, those that took most first."""
        if not self._seen:
            return ()
        places = set.intersection(*map(set, self._seen))
        found = []
        for place, module in places:
            calls = [call for seen in self._seen for call in seen[place, module]]
            found.append(
                UntrainedCalls(
                    place=place,
                    module=module,
                    calls=len(calls),
                    steps=len(self._seen),
                    seconds=sum(call.taken for call in calls) / 1e9,
                    whole_s=self._whole_ns / 1e9,
                    with_grad=any(call.with_grad for call in calls),
                )
            )
        return tuple(sorted(found, key=lambda each: -each.seconds))


def _tensors(given: Any) -> list[Any]:
    """Return the tensors in what an operation or a module is given or returns; of an object, those it holds."""
    found = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    if not found and hasattr(given, "__dict__"):
        found = [each for each in vars(given).values() if isinstance(each, torch.Tensor)]
    return found


PROBE = Probe(
    name="untrained-calls",
    make=lambda deep: CallsFollowed(deep.event_log),
    install=CallsFollowed.install,
    step=CallsFollowed.step,
    around=CallsFollowed.around,
    stop=CallsFollowed.stop,
    causes={"untrained_calls": CallsFollowed.facts},
    after=("slow-forms",),
)
