"""A compiled graph's node in the autograd graph: which outputs and inputs of the compiled graph it connects."""

from collections.abc import Iterator
from typing import Any

__all__ = ["Numbers", "all_from", "edges", "node_of", "numbers_of", "sources"]

Numbers = dict[int, tuple[int, bool]]
"""By the number of a node's output: the place of one of the graph's outputs, and whether it is the base of that."""


def node_of(outputs: Any) -> Any:
    """Return the node of the compiled graph in the graph of gradients, None where there is none."""
    for output in outputs:
        for tensor in (output, getattr(output, "_base", None)):
            node = getattr(tensor, "grad_fn", None)
            if hasattr(getattr(type(node), "_forward_cls", None), "compiled_bw"):
                return node
    return None


def numbers_of(outputs: Any, node: Any) -> Numbers:
    """Return by its number what each output of the node is: the place of one of the graph's, and whether its base.

    Of several views of one tensor that tensor is the node's output.
    """
    found: Numbers = {}
    for place, output in enumerate(outputs):
        if getattr(output, "grad_fn", None) is node:
            found.setdefault(output.output_nr, (place, False))
        elif _base_from(output, node):
            found.setdefault(output._base.output_nr, (place, True))
    return found


def _base_from(output: Any, node: Any) -> bool:
    base = getattr(output, "_base", None)
    return base is not None and base.grad_fn is node


def all_from(outputs: Any, node: Any, args: tuple[Any, ...]) -> bool:
    """Return whether every output that has a gradient comes from the node, or is an input."""
    given = {id(arg) for arg in args}
    graded = [output for output in outputs if getattr(output, "requires_grad", False)]
    return all(output.grad_fn is node or _base_from(output, node) or id(output) in given for output in graded)


def edges(node: Any, args: tuple[Any, ...]) -> Iterator[int]:
    """Yield, for each input of the node that has a gradient, the place of the graph's input it belongs to."""
    for function, number in node.next_functions:
        if function is None:
            continue
        leaf = getattr(function, "variable", None)
        yield next(
            place
            for place, arg in enumerate(args)
            if (arg is leaf if leaf is not None else _is_output(arg, function, number))
        )


def _is_output(arg: Any, function: Any, number: int) -> bool:
    return getattr(arg, "grad_fn", None) is function and arg.output_nr == number


def sources(graph: Any, places: set[int]) -> set[int]:
    """Return the places of the graph's inputs that the outputs at `places` depend on."""
    nodes = list(graph.nodes)
    inputs = {node: place for place, node in enumerate(one for one in nodes if one.op == "placeholder")}
    outputs = nodes[-1].args[0]
    waiting = [outputs[place] for place in places]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += node.all_input_nodes
    return {inputs[node] for node in seen if node in inputs}
