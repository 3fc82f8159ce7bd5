"""Rows of the outputs of linear layers that the loss does not read, and what computing all rows takes.

In a few steps of the deep run the graph is walked from the loss to the nearest linear layers, past operations that pick
rows, reshape, average and compare with targets. Rows whose gradient is zero on the way were computed in vain. Where a
gradient may be zero because of a value (a hinge, a maximum), nothing is told. Afterwards the layer and, where it is
one, the cross entropy are timed for all rows and for those that are read, on other numbers.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from threading import get_ident
from time import perf_counter
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from flatout.probe.core.probe import DeepContext, Probe
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import caller
from flatout.schema.run import Frame, Step, UnusedRows

__all__ = ["PROBE", "RowWatch"]

_AT = frozenset((11, 12, 13))  # steps: others are looked at by other probes
_MOST_NODES = 64  # between the loss and the nearest layers
_WORTH = 1 << 20  # products of a layer, in numbers, that are looked at
_PASSES = 5
_LONGEST_S = 1.0
_MOST_BYTES = 1 << 28
_PICKS = frozenset(  # what a gradient passes on its way to a row, whatever the values are
    [
        "Add",
        "Sub",
        "Neg",
        "Mean",
        "Sum",
        "Div",
        "Mul",
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Permute",
        "T",
        "Expand",
        "Clone",
        "ToCopy",
        "Alias",
        "Slice",
        "Select",
        "Index",
        "IndexSelect",
        "Gather",
        "Narrow",
        "Split",
        "SplitWithSizes",
        "Unbind",
        "Cat",
        "Stack",
        "LogSoftmax",
        "MaskedSelect",
        "Contiguous",
        "Copy",
        "AsStrided",
        "MseLoss",
        "BinaryCrossEntropyWithLogits",
    ]
)
_ENTROPY = frozenset(("NllLoss", "NllLoss2D"))
_CHOOSES = frozenset(("Index", "IndexSelect", "Gather", "MaskedSelect"))


@dataclass(slots=True)
class _Layer:
    """A linear layer that was called in the step under way."""

    node: Any
    place: Frame | None
    inputs: int
    width: int
    dtype: torch.dtype
    bias: bool


class RowWatch:
    """Looks at the gradients of the last linear layers in a few steps."""

    def __init__(self, deep: DeepContext) -> None:
        """Have seen nothing yet."""
        self._deep = deep
        self._step = 1
        self._layers: list[_Layer] = []
        self._handles: list[Any] = []
        self._seen: dict[Frame | None, list[tuple[int, int, _Layer, bool]]] = {}
        self._found: UnusedRows | None = None

    def install(self, seams: Seams) -> None:
        """Wrap the function that linear layers call."""
        log = self._deep.event_log

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def linear(*args: Any, **kwargs: Any) -> Any:
                if log.tracing.possible and is_dynamo_compiling():
                    return original(*args, **kwargs)
                hits.count += 1
                result = original(*args, **kwargs)
                if self._step + 1 in _AT and not log.fetching and get_ident() == log.thread:
                    self._note(result, args, kwargs)
                return result

            return linear

        seams.wrap("torch.nn.functional:linear", make)

    def _note(self, result: Any, args: Any, kwargs: Any) -> None:
        with contextlib.suppress(Exception):  # tensors of any kind
            weight = args[1] if len(args) > 1 else kwargs["weight"]
            bias = kwargs.get("bias", args[2] if len(args) > 2 else None)
            width, inputs = weight.shape
            if result.grad_fn is not None and result.numel() * inputs >= _WORTH:
                place = caller(3)
                self._layers.append(_Layer(result.grad_fn, place, inputs, width, result.dtype, bias is not None))

    def backward(self, tensor: Any) -> None:
        """A backward pass is about to begin from `tensor`."""
        if self._layers and self._step + 1 in _AT:
            with contextlib.suppress(Exception):  # graphs of any kind
                self._look(tensor)
        self._layers.clear()

    def _look(self, tensor: Any) -> None:
        root = tensor[0] if isinstance(tensor, (list, tuple)) else tensor
        layers = {each.node: each for each in self._layers}
        for node, entropy in _reached(root.grad_fn, set(layers)):
            hook = partial(self._gradient, layers[node], entropy)
            self._handles.append(node.register_prehook(hook))

    def _gradient(self, layer: _Layer, entropy: bool, gradients: Any) -> None:
        with contextlib.suppress(Exception):
            rows = gradients[0].detach().reshape(-1, layer.width)
            read = int((rows != 0).any(1).sum())
            found = (len(rows), len(rows) - read, layer, entropy)
            layer.node = None
            self._seen.setdefault(layer.place, []).append(found)

    def step(self, step: Step, number: int) -> None:
        """Take one finished step."""
        self._step = number
        self._layers.clear()
        while self._handles:
            self._handles.pop().remove()

    def measure(self) -> None:
        """Time the layer with most unused work, in both ways."""
        seen = {place: some for place, some in self._seen.items() if len(some) >= 2}
        if not seen or torch.cuda.is_initialized():
            return
        place, some = max(seen.items(), key=lambda each: _lost(each[1]))
        rows, unused = round(median(each[0] for each in some)), round(median(each[1] for each in some))
        layer, entropy = some[-1][2:]
        self._found = UnusedRows(place=place, rows=rows, unused=unused, width=layer.width)
        if unused and 16 * rows * layer.width + 8 * layer.inputs * layer.width < _MOST_BYTES:
            with contextlib.suppress(Exception):  # out of memory, say
                self._found = _timed(self._found, layer, entropy)

    def facts(self) -> UnusedRows | None:
        """Return what was measured; None where the loss reads every row, as far as can be told."""
        return self._found


def _lost(some: list[tuple[int, int, _Layer, bool]]) -> float:
    return median(unused * layer.width * layer.inputs for _, unused, layer, _ in some)


def _reached(root: Any, wanted: set[Any]) -> list[tuple[Any, bool]]:
    """Return the wanted nodes that lead to the root past what only picks rows, and whether a cross entropy is between.

    Rows that are picked before the cross entropy may be picked by their losses; a factor of these is mostly a mask.
    """
    found: dict[Any, bool] = {}
    known: set[Any] = set()
    waiting = [(root, False, frozenset[str]())]
    while waiting and len(known) < _MOST_NODES:
        node, entropy, passed = waiting.pop()
        if node is None or node in known:
            continue
        known.add(node)
        name = type(node).__name__.partition("Backward")[0]
        if node in wanted:
            if entropy or "Mul" not in passed:
                found[node] = entropy
        elif name in _ENTROPY and not passed & _CHOOSES:
            waiting += [(following, True, passed) for following, _ in node.next_functions]
        elif name in _PICKS:
            waiting += [(following, entropy, passed | {name}) for following, _ in node.next_functions]
    return list(found.items())


def _timed(found: UnusedRows, layer: _Layer, entropy: bool) -> UnusedRows:
    """Return what is found, with the medians of passes for all rows and for those that are read."""
    weight = torch.rand(layer.width, layer.inputs, dtype=layer.dtype).sub_(0.5).requires_grad_()
    bias = torch.zeros(layer.width, dtype=layer.dtype, requires_grad=True) if layer.bias else None
    taken: tuple[list[float], list[float]] = ([], [])
    begin = perf_counter()
    while len(taken[1]) < _PASSES and (len(taken[1]) < 2 or perf_counter() - begin < _LONGEST_S):
        for rows, times in zip((found.rows, found.rows - found.unused), taken, strict=True):
            times.append(_pass_s(rows, layer, weight, bias, entropy))
    all_s, used_s = (median(times) for times in taken)
    return UnusedRows(
        place=found.place,
        rows=found.rows,
        unused=found.unused,
        width=found.width,
        n=len(taken[1]),
        all_s=all_s,
        used_s=used_s,
    )


def _pass_s(rows: int, layer: _Layer, weight: Any, bias: Any, entropy: bool) -> float:
    inputs = torch.rand(rows, layer.inputs, dtype=layer.dtype, requires_grad=True)
    targets = torch.zeros(rows, dtype=torch.long)
    begin = perf_counter()
    with torch.enable_grad():
        outputs = torch.ops.aten.linear(inputs, weight, bias)
        loss = torch.ops.aten.nll_loss(outputs.log_softmax(1), targets) if entropy else outputs.mean()
        leaves = [inputs, weight] if bias is None else [inputs, weight, bias]
        engine = torch.autograd.Variable._execution_engine
        engine.run_backward((loss,), (torch.ones_like(loss),), False, False, tuple(leaves), True, False)
    return perf_counter() - begin


PROBE = Probe(
    name="unused-rows",
    make=RowWatch,
    install=RowWatch.install,
    backward=RowWatch.backward,
    step=RowWatch.step,
    measure=lambda watch, causes: watch.measure(),
    trials={"unused_rows": RowWatch.facts},
    after=("unused-gradients",),
)
