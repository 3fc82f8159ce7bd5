"""Which gradients of a backward pass no optimizer reads, and what computing them takes.

In a few steps of the deep run the graph is walked from the loss. A node is needed when a way leads from it to what an
optimizer holds, or to a tensor that is no parameter; the others are timed one by one, by hooks that go with the step:
until the next node begins, since giving back what a node was given takes its time, too.
What belongs to an optimizer that has not stepped yet, or has changed by the end, is read by somebody after all.
"""

import contextlib
import gc
import statistics
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from flatout.probe.core.probe import DeepContext, Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import caller
from flatout.schema.run import Frame, Step, UnusedGradients

__all__ = ["LOOKED", "PROBE", "GradientWatch", "living_optimizers"]

_AT = frozenset((5, 7, 9))  # steps: whatever optimizes has mostly stepped by then
LOOKED = 10
"""The step after which there is nothing more to look at."""

_MOST_NODES = 20_000
_PART = 1 << 20  # values summed at once
_MOST_PLACES = 16  # outermost modules whose calls are remembered


class NeedlessTime:
    """How long the needless nodes of a backward pass take, by hooks of the nodes."""

    def __init__(self, trouble: Callable[[Exception], None]) -> None:
        """Follow none yet; errors of its own go to `trouble`."""
        self.trouble = trouble
        self._of_step = 0.0
        self._since = 0.0  # when the needless node that is under way began; 0: none is
        self._ends_told = False  # of the backward pass under way
        self._handles: list[Any] = []

    def follow(self, nodes: Iterable[tuple[Any, bool]]) -> None:
        """Hook nodes, each with whether it is needed."""
        self._handles += [node.register_prehook(partial(self._enter, not needed)) for node, needed in nodes]

    def unhook(self) -> None:
        """Follow none any more."""
        while self._handles:
            self._handles.pop().remove()

    def take(self) -> float:
        """Return the seconds of the step that ends here, and begin the next."""
        seconds, self._of_step, self._since, self._ends_told = self._of_step, 0.0, 0.0, False
        return seconds

    @guarded
    def _enter(self, needless: bool, *_: Any) -> None:
        """A node begins, and what was under way is over."""
        _wait()
        now = perf_counter()
        self._of_step += now - self._since if self._since else 0.0
        self._since = now if needless else 0.0
        if not self._ends_told:
            self._ends_told = True
            torch.autograd.Variable._execution_engine.queue_callback(self._leave)

    @guarded
    def _leave(self) -> None:
        """The last node has ended; an exchange that ranks make may still be under way."""
        self._enter(False)
        self._ends_told = False


class GradientWatch:
    """Looks at the graphs of a few steps."""

    def __init__(
        self,
        trouble: Callable[[Exception], None],
        optimizers: Callable[[], Iterable[Any]] = tuple,
        copied: Collection[int] = (),
        over: Callable[[], Collection[Any]] = tuple,
    ) -> None:
        """Have seen nothing yet; errors of its own go to `trouble`, and `optimizers` gives those that have stepped.

        `copied` holds the identities of parameters whose gradients nobody reads although their values may change: a
        target network gets those of the trained one. `over` gives the optimizers that step no more.
        """
        self.trouble = trouble
        self._optimizers = optimizers
        self._copied, self._over = copied, over
        self._places: dict[int, Frame | None] = {}  # of calls, by the module's identity
        self._asked: dict[int, bool] = {}  # whether what modules were called with asks for gradients, by identity
        self._steps = 1  # that were finished: the first one is not told
        self._taken_s: list[float] = []  # a step that was looked at
        self._needless = NeedlessTime(trouble)
        self._unread: dict[int, tuple[Any, float]] = {}  # parameters that no optimizer holds, and their sums
        self._free = True  # to be frozen: gradients stay from step to step, and the script hooks no tensor
        self._bytes: dict[int, int] = {}  # of gradients, by the parameter's identity

    def install(self, seams: Seams) -> None:
        """Note whether the script hooks tensors: without a graph there is an error in place of a hook."""

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def hook(*args: Any, **kwargs: Any) -> Any:
                hits.count += 1
                self._free = False
                return original(*args, **kwargs)

            return hook

        for name in ("register_hook", "retain_grad"):
            seams.wrap(f"torch:Tensor.{name}", make)

    @guarded
    def called(self, module: Any, arguments: Any) -> None:
        """An outermost module is about to be called."""
        if id(module) not in self._places and len(self._places) < _MOST_PLACES and torch.is_grad_enabled():
            self._places[id(module)] = caller(2)
        if self._steps + 1 in _AT and torch.is_grad_enabled():
            self._asked[id(module)] = self._asked.get(id(module), False) or _ask_for_gradients(arguments)

    def backward(self, tensors: Any) -> None:
        """A backward pass is about to begin from `tensors`."""
        self._needless.unhook()
        if self._steps + 1 in _AT:
            with contextlib.suppress(Exception):  # nodes and parameters of any kind
                self._look(tensors)

    def _look(self, tensors: Any) -> None:
        held = {id(one) for one in _held_by(self._optimizers())}
        roots = [one.grad_fn for one in (tensors if isinstance(tensors, (list, tuple)) else (tensors,))]
        graph = _Graph([one for one in roots if one is not None], held)
        if graph.recomputes or not graph.unread or not graph.trained:
            return
        self._bytes |= {id(one): one.nbytes for one in (*graph.unread, *graph.trained)}
        self._free = self._free and (not self._taken_s or all(one.grad is not None for one in graph.unread))
        for one in graph.unread:
            if id(one) not in self._unread:
                self._unread[id(one)] = weakref.ref(one), _sum(one)
        self._needless.follow(graph.nodes())

    @guarded
    def step(self, step: Step, number: int) -> None:
        """Take one finished step."""
        self._steps = number
        self._needless.unhook()
        seconds = self._needless.take()
        if number in _AT:
            self._taken_s.append(seconds)

    def freezing(self) -> Callable[[bool], None] | None:
        """Return what freezes these parameters, and lets them ask for gradients again; None where that is no trial."""
        found = self.freezable()
        if not found:
            return None

        def freeze(on: bool) -> None:
            for one in found:
                one.requires_grad_(not on)

        return freeze

    def freezable(self) -> list[Any]:
        """Return these parameters; none where the script may miss their gradients.

        Other ranks would wait for them, and a script that finds None in place of one may end, or that hooks a tensor of
        the graph.
        """
        distributed = torch.distributed
        together = distributed.is_available() and distributed.is_initialized()
        if not self._unread or not self._free or together:
            return []
        with contextlib.suppress(Exception):  # parameters of any kind
            return self._still_unread(copied=())
        return []

    def _still_unread(self, copied: Collection[int]) -> list[Any]:
        """Return the parameters seen, where no optimizer that there is holds one, and none but `copied` has changed."""
        over = {id(one) for one in self._over()}
        held = {id(one) for one in _held_by(one for one in living_optimizers() if id(one) not in over)}
        seen = [(one, before) for ref, before in self._unread.values() if (one := ref()) is not None]
        unread = [one for one, before in seen if id(one) not in held and (id(one) in copied or _sum(one) == before)]
        return unread if len(unread) == len(self._unread) else []

    def facts(self, modules: Iterable[Any]) -> UnusedGradients | None:
        """Return what was seen; None where every gradient is read, as far as can be told."""
        with contextlib.suppress(Exception):  # parameters of any kind
            return self._found(modules)
        return None

    def _found(self, modules: Iterable[Any]) -> UnusedGradients | None:
        if not self._taken_s or not self._unread:
            return None
        unread = self._still_unread(self._copied)
        found = _named(list(modules), {id(one) for one in unread})
        named = sorted(found, key=lambda each: each[1].nbytes, reverse=True)
        if not named:
            return None
        name, _, module = named[0]
        return UnusedGradients(
            n=len(self._taken_s),
            parameters=len(unread),
            num_bytes=sum(one.nbytes for one in unread),
            all_bytes=sum(self._bytes.values()),
            largest=name,
            seconds=statistics.median(self._taken_s),
            place=self._places.get(id(module)),
            untrained=_untrained_part(module, name, {id(one) for one in unread}),
            given_gradients=self._asked.get(id(module), True),
        )


class _Graph:
    """What leads where in one graph of gradients."""

    def __init__(self, roots: list[Any], held: set[int]) -> None:
        self.trained: list[Any] = []  # parameters that are held
        self.unread: list[Any] = []  # and those that are not
        self.recomputes = False  # reentrant checkpoints hide what they train, and want inputs that ask for gradients
        self._held = held
        self._needed: dict[Any, bool] = {}
        waiting = [(root, False) for root in roots]
        while waiting and len(self._needed) < _MOST_NODES:
            node, seen = waiting.pop()
            if seen:
                self._needed[node] = any(self._needed[one] for one in _next(node))
            elif node not in self._needed:
                following = _next(node)
                self.recomputes = self.recomputes or type(node).__name__ == "CheckpointFunctionBackward"
                self._needed[node] = not following and self._is_read(node)
                waiting += [(node, True), *((one, False) for one in following)] if following else []
        if waiting:  # too large to be walked
            self.unread = []

    def nodes(self) -> Iterable[tuple[Any, bool]]:
        """Return the nodes, and of each whether it leads to anything that is read."""
        return self._needed.items()

    def _is_read(self, leaf: Any) -> bool:
        variable = getattr(leaf, "variable", None)
        if not isinstance(variable, Parameter):
            return True
        held = id(variable) in self._held
        (self.trained if held else self.unread).append(variable)
        return held


def _next(node: Any) -> list[Any]:
    return [following for following, _ in node.next_functions if following is not None]


def _held_by(optimizers: Iterable[Any]) -> Iterator[Any]:
    return (one for optimizer in optimizers for group in optimizer.param_groups for one in group["params"])


def living_optimizers() -> list[Any]:
    """Return every optimizer that there is, also one that steps later."""
    return [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]


def _named(modules: Iterable[Any], wanted: set[int]) -> Iterator[tuple[str, Any, Any]]:
    """Give name, parameter and outermost module of the parameters whose identities are `wanted`."""
    for module in modules:
        inner = module.module if isinstance(module, DistributedDataParallel) else module
        for name, parameter in inner.named_parameters():
            if id(parameter) in wanted:
                yield name, parameter, module


def _ask_for_gradients(arguments: Any) -> bool:
    """Return whether a tensor among arguments asks for gradients; an object of another kind may hold one that does."""
    if isinstance(arguments, torch.Tensor):
        return arguments.requires_grad
    if isinstance(arguments, dict):
        return any(map(_ask_for_gradients, arguments.values()))
    if isinstance(arguments, (list, tuple)):
        return any(map(_ask_for_gradients, arguments))
    return not isinstance(arguments, (int, float, str, bytes, type(None)))


def _untrained_part(module: Any, name: str, unread: set[int]) -> str | None:
    """Return the largest part of a module around the parameter `name` of which nothing is trained, None if none is."""
    inner = module.module if isinstance(module, DistributedDataParallel) else module
    path = name.split(".")[:-1]
    for length in range(len(path) + 1):
        part = inner.get_submodule(".".join(path[:length]))
        if all(id(one) in unread for one in part.parameters() if one.requires_grad):
            return ".".join(path[:length])
    return None


def _wait() -> None:
    """Wait for what a device computes of this pass, not for an exchange on a stream of its own; never in a capture."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream().synchronize()


def _sum(parameter: Any) -> float:
    """Return a number that changes when a value does, a copy of a part of the values at a time."""
    with torch.no_grad():
        return sum(float(part.double().sum()) for part in parameter.detach().reshape(-1).split(_PART))


def _offer_to_freeze(both: tuple[GradientWatch, DeepContext], step: Step, number: int) -> None:
    """Take a step; have gradients that nobody reads priced, unless a compiled model would be compiled anew for it."""
    watch, deep = both
    watch.step(step, number)
    if number == LOOKED and not deep.event_log.tracing.possible and (freeze := watch.freezing()) is not None:
        deep.offer("gradients", freeze)


PROBE: Probe[tuple[GradientWatch, DeepContext]] = Probe(
    name="unused-gradients",
    make=lambda deep: (GradientWatch(deep.fail, deep.optimizers, deep.unread, deep.over), deep),
    install=lambda both, seams: both[0].install(seams),
    called=lambda both, module, arguments: both[0].called(module, arguments),
    backward=lambda both, tensor: both[0].backward(tensor),
    step=_offer_to_freeze,
    causes={"unused_gradients": lambda both: both[0].facts(both[1].modules())},
)
