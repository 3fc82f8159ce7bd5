"""Compiled graphs that keep the code they were made from beside them, for the calls that compiled code cannot serve.

`torch.compile` gives a backward pass that has no derivative of its own, is one piece for all outputs, and may need
inputs that the script's own would not. Where such a pass is asked for a second derivative, or fails, the graph is run
again uncompiled: from the same inputs, random numbers and buffers, as the script had them in its forward pass.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flatout.fixes.model.forward_state import ForwardState
from flatout.fixes.model.gradient_nodes import Numbers, all_from, edges, node_of, numbers_of, sources

__all__ = ["TwinBackend"]

_HELD = "_flatout_held"
_FREED = "backward through the graph a second time"
_OVERWRITTEN = "modified by an inplace operation"


class TwinBackend:
    """A backend of `torch.compile`: the compiler's graphs, each with its twin; what fails to compile runs as it is.

    `failed(error)` is told of what cannot be compiled. `copies`: inputs that only compiled code keeps for its backward
    pass are copied first, so that the script may write there; not where addresses must stay (CUDA graphs).
    """

    def __init__(self, compiler: Callable[..., Any], failed: Callable[[Exception], None], *, copies: bool) -> None:
        """Take the compiler: from a graph and its inputs to a function."""
        self._compiler = compiler
        self._failed = failed
        self._copies = copies

    def __call__(self, graph: Any, inputs: Any, **settings: Any) -> Callable[..., Any]:
        """Return the function that is called in place of `graph`."""
        import torch
        from torch._dynamo import exc

        plain = torch.fx.GraphModule(graph, _copied(graph.graph))  # compilers change the one they are given
        try:
            compiled = self._compiler(graph, inputs, **settings)
        except Exception as error:
            if isinstance(error, getattr(exc, "RestartAnalysis", ())):
                raise
            self._failed(error)
            return plain
        return _Twin(plain, compiled, self._failed, copies=self._copies).call


class _Twin:
    """One graph, compiled and as it is."""

    def __init__(
        self, plain: Any, compiled: Callable[..., Any], failed: Callable[[Exception], None], *, copies: bool
    ) -> None:
        self._plain = plain
        self._compiled = compiled
        self._failed = failed
        self._may_copy = copies
        self._known = False
        self._changing: tuple[int, ...] = ()  # inputs that the graph writes to: buffers
        self._copied: tuple[int, ...] = ()  # inputs that only the compiled code needs in its backward pass
        self._draws = False

    def call(self, *args: Any) -> Any:
        if not self._known:
            return self._first(args)
        if self._copied:
            args = tuple(arg.clone() if place in self._copied else arg for place, arg in enumerate(args))
        moment = ForwardState(args, self._changing, draws=self._draws)
        outputs = self._compiled(*args)
        if (node := node_of(outputs)) is not None:
            moment.watch()
            setattr(node, _HELD, (self, moment, numbers_of(outputs, node)))
        return outputs

    # -- the first call: what the graph does with its inputs ----------------------------------------------------

    def _first(self, args: tuple[Any, ...]) -> Any:
        import torch

        tensors = [place for place, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
        moment = ForwardState(args, tuple(place for place in tensors if not args[place].requires_grad), draws=True)
        moment.watch()
        outputs = self._compiled(*args)
        try:
            return self._learn(moment, outputs, args)
        except Exception as error:  # the call was made: what cannot be known of it ends the fix, not the training
            self._failed(error)
            return outputs

    def _learn(self, moment: ForwardState, outputs: Any, args: tuple[Any, ...]) -> Any:
        """Note what the graph does; return the outputs to go on with."""
        self._changing = moment.written()
        self._draws = moment.drew()
        node = node_of(outputs)
        self._known = True
        moment.watch()
        if not all_from(outputs, node, args):  # which outputs of the node they come from is not known: not compiled
            self._compiled = self._plain
            with moment.again() as inputs:
                return self._plain(*inputs)
        if node is None:
            return outputs
        _serve(type(node)._forward_cls)
        setattr(node, _HELD, (self, moment, numbers_of(outputs, node)))
        if self._may_copy:
            own = set(self._saved_by_plain(moment))
            kept = {_storage(tensor) for tensor in node.saved_tensors if tensor is not None}
            self._copied = tuple(
                place
                for place in moment.places
                if place not in self._changing and (key := _storage(args[place])) in kept and key not in own
            )
        return outputs

    def _saved_by_plain(self, moment: ForwardState) -> list[int]:
        """Return the addresses of what the graph as it is keeps for its backward pass."""
        import torch

        found: list[int] = []

        def pack(tensor: Any) -> Any:
            found.append(_storage(tensor))
            return None

        with moment.again() as args, torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
            self._plain(*(arg if place in self._changing else moment.args[place] for place, arg in enumerate(args)))
        return found

    # -- a backward pass that the compiled code cannot serve ----------------------------------------------------

    def gradients(self, node: Any, moment: ForwardState, numbers: Numbers, grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of the graph's inputs, by its plain code.

        Raises:
            RuntimeError: when inputs that it depends on were overwritten.
        """
        import torch

        create = torch.is_grad_enabled()
        wanted = {numbers[place]: grad for place, grad in enumerate(grads) if _counts(grad) and place in numbers}
        lost = moment.overwritten()
        if lost and lost & sources(self._plain.graph, {place for place, _ in wanted}):
            raise RuntimeError(f"one of the variables needed for gradient computation has been {_OVERWRITTEN}")
        inputs = [moment.args[place] for place in edges(node, moment.args)]
        with moment.again() as args:
            with _outside_transforms():
                outputs = self._plain(*args)
            each = ((outputs[place]._base if base else outputs[place], grad) for (place, base), grad in wanted.items())
            pairs = [(output, grad) for output, grad in each if output.requires_grad]
            found: Any = [None] * len(inputs)
            if pairs and inputs:
                found = torch.autograd.grad(
                    [one for one, _ in pairs], inputs, [grad for _, grad in pairs],
                    create_graph=create, allow_unused=True,
                )  # fmt: skip
        grads_of = iter(found)
        return tuple(next(grads_of) if needed else None for needed in node.needs_input_grad)


def _serve(function: Any) -> None:
    """Have the backward pass of a compiled graph fall back on its twin; once for each."""
    import torch

    original = function.backward
    if getattr(original, _HELD, False):
        return
    keeps = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)

    def backward(ctx: Any, *given: Any) -> Any:
        held = getattr(ctx, _HELD, None)
        if held is None:
            return original(ctx, *given)
        grads = list(given[0]) if len(given) == 1 and isinstance(given[0], list) else list(given)
        if torch.is_grad_enabled():
            _raise_if_freed(ctx)
            return held[0].gradients(ctx, *held[1:], grads)
        try:
            found = original(ctx, *given)
        except Exception as error:
            if _FREED in str(error):
                raise
            try:
                found = held[0].gradients(ctx, *held[1:], grads)
            except Exception:
                raise error from None
        if not keeps():
            setattr(ctx, _HELD, None)  # inputs are let go as the graph lets them go
        return found

    setattr(backward, _HELD, True)
    function.backward = staticmethod(backward)


@contextlib.contextmanager
def _outside_transforms() -> Iterator[None]:
    """Leave the transforms that gradients in a batch are made in, `torch.func`'s and the older ones, for a while."""
    import torch
    from torch._functorch import pyfunctorch

    torch._C._vmapmode_increment_nesting()
    nested = torch._C._vmapmode_decrement_nesting()
    for _ in range(nested):
        torch._C._vmapmode_decrement_nesting()
    try:
        with getattr(pyfunctorch, "temporarily_clear_interpreter_stack", contextlib.nullcontext)():
            yield
    finally:
        for _ in range(nested):
            torch._C._vmapmode_increment_nesting()


def _raise_if_freed(ctx: Any) -> None:
    try:
        ctx.saved_tensors  # noqa: B018
    except RuntimeError as error:
        if _OVERWRITTEN not in str(error):
            raise


def _counts(grad: Any) -> bool:
    """Return whether a gradient is one: of outputs that nothing depends on there are zeros."""
    if grad is None:
        return False
    with contextlib.suppress(Exception):  # a batch of gradients does not tell
        return grad.requires_grad or bool(grad.any())
    return True


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _copied(graph: Any) -> Any:
    import torch

    twin = torch.fx.Graph()
    twin.output(twin.graph_copy(graph, {}))
    return twin
