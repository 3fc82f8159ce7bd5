"""One backward pass, node by node: what leads where, and how long each node takes until the next one begins.

On the CPU that is time of the thread that runs the pass: what else runs on the machine does not lengthen a node.
"""

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import torch

from flatout.probe.backward.forward_lines import forward_line, is_of_recurrent_layer
from flatout.schema.run import Frame

__all__ = ["Leaf", "NodeRun", "NodeTimer", "PassKey", "RecordedPass", "graph_of"]

PassKey = tuple[Frame | None, int]
"""A pass of each step: where it begins, and the how manyth from there."""

_MARK = "flatout.node"
_NUMBERS = itertools.count(1)  # by which nodes are known, in their metadata
_MOST_NODES = 20_000
_HOOK_S = 2.5e-6  # of a node's time: the engine hands its gradients to the hook, and takes them back


class Leaf:
    """A tensor whose gradient a pass makes; an input, which is another one in each step, is known by its shape."""

    __slots__ = ("identity", "is_parameter", "num_bytes", "ref", "shape")

    def __init__(self, tensor: Any) -> None:
        """Take the tensor, and do not keep it."""
        self.ref = weakref.ref(tensor)
        self.is_parameter = isinstance(tensor, torch.nn.Parameter)
        self.shape = tuple(tensor.shape)
        self.num_bytes: int = tensor.nbytes
        self.identity: object = id(tensor) if self.is_parameter else self.shape


@dataclass(slots=True)
class NodeRun:
    """A node in one pass."""

    identity: int  # the same in each pass of a graph
    name: str
    place: Frame | None  # in the forward pass
    leaf: Leaf | None = None
    following: tuple[int, ...] = ()  # places of nodes it leads to, in the pass
    seconds: float = 0.0
    ran: bool = False


@dataclass(slots=True)
class RecordedPass:
    """What was seen of a pass."""

    place: Frame | None
    step: int
    ordinal: int  # of the passes of its step from that line
    adds: bool  # into gradients, as `backward` does
    creates_graph: bool
    nodes: list[NodeRun] = field(default_factory=list)
    timed: bool = False
    changed: bool = False  # gradients or weights since the pass before it, or somebody has read them

    @property
    def key(self) -> PassKey:
        """Return what it is known by in every step."""
        return self.place, self.ordinal

    def leaves(self) -> Iterator[Leaf]:
        """Yield the tensors whose gradients it makes."""
        return (node.leaf for node in self.nodes if node.leaf is not None)


class NodeTimer:
    """Times the nodes of a pass, by a hook before each."""

    def __init__(self) -> None:
        """Nothing is timed."""
        self._handles: list[Any] = []
        self._current: NodeRun | None = None
        self._since = 0.0
        self._clock: Callable[[], float] = thread_time

    def follow(self, nodes: Iterable[tuple[Any, NodeRun]]) -> None:
        """Hook the nodes of the pass that is about to begin."""
        self._handles = [node.register_prehook(partial(self._enter, run)) for node, run in nodes]
        self._current = None
        self._clock = perf_counter if torch.cuda.is_initialized() else thread_time

    def end(self) -> None:
        """The pass is over."""
        self._close()
        while self._handles:
            self._handles.pop().remove()

    def _enter(self, run: NodeRun, *_: Any) -> None:
        self._close()
        self._current = run
        run.ran = True
        self._since = self._clock()

    def _close(self) -> None:
        if self._current is not None:
            _wait()
            self._current.seconds += max(0.0, self._clock() - self._since - _HOOK_S)
            self._current = None


def graph_of(roots: Iterable[Any]) -> list[tuple[Any, NodeRun]]:
    """Return the nodes that a pass from `roots` can reach, and what is to be noted of each; none of a huge graph."""
    places: dict[Any, int] = {}
    waiting = [root for root in roots if root is not None]
    while waiting:
        node = waiting.pop()
        if node in places:
            continue
        places[node] = len(places)
        if len(places) > _MOST_NODES:
            return []
        waiting.extend(following for following, _ in node.next_functions if following is not None)
    return [(node, _run(node, places)) for node in places]


def _run(node: Any, places: dict[Any, int]) -> NodeRun:
    known = node.metadata.get(_MARK) or node.metadata.setdefault(_MARK, next(_NUMBERS))
    following = tuple(places[one] for one, _ in node.next_functions if one is not None)
    tensor = getattr(node, "variable", None) if not following else None
    leaf = Leaf(tensor) if isinstance(tensor, torch.Tensor) else None
    name = node.name().rpartition("::")[2]
    if is_of_recurrent_layer(node):
        name += " of a recurrent layer"  # no line of the script says how it is computed
    return NodeRun(known, name, forward_line(node), leaf, following)


def _wait() -> None:
    """Wait for what a device computes of this pass; never in a capture."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream().synchronize()
