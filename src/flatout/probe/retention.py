"""Autograd graphs of past steps that are still alive, and the name that keeps them.

Every loss gets a small mark in its graph node's metadata, which lives exactly as long as the node. At the end the
variables of the user's frames are searched for tensors whose graphs carry many such marks.
"""

import ast
import linecache
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from flatout.probe.places import is_user_file
from flatout.schema.run import Frame, Retained

__all__ = ["RetentionWatch"]

_LIMIT = 400  # losses marked
_NODES = 20_000  # graph nodes walked for one name
_MARK = "flatout"


class _Mark:
    """Lives as long as the graph node it hangs on."""

    __slots__ = ("__weakref__",)


class RetentionWatch:
    """Marks the graphs of losses and finds who keeps them."""

    def __init__(self) -> None:
        """Mark nothing yet."""
        self._marks: list[weakref.ref[_Mark]] = []

    def mark(self, tensor: Any) -> None:
        """Mark the graph below `tensor`, which `backward()` is about to be called on."""
        node = getattr(tensor, "grad_fn", None)
        if node is not None and len(self._marks) < _LIMIT:
            mark = _Mark()
            node.metadata[_MARK] = mark
            self._marks.append(weakref.ref(mark))

    def find(self, frame: FrameType | None) -> tuple[Retained, ...]:
        """Return the names, seen from `frame` outwards, behind which graphs of past steps are alive."""
        older = self._marks[:-2]
        alive = sum(mark() is not None for mark in older)
        if len(older) < 5 or alive < len(older) / 2:
            return ()
        found = []
        while frame is not None:
            if is_user_file(frame.f_code.co_filename):
                for name, value in _names(frame):
                    graphs, num_bytes = _graphs_behind(value)
                    if graphs >= len(older) / 4:
                        place = _keeping_line(frame, name)
                        found.append(
                            Retained(name=name, place=place, graphs=alive, of_steps=len(older), num_bytes=num_bytes)
                        )
            frame = frame.f_back
        return tuple({item.name: item for item in found}.values()) or (
            Retained(name="", place=None, graphs=alive, of_steps=len(older)),
        )


def _names(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Yield variables of a frame and attributes of the user's objects in it."""
    for name, value in list(frame.f_locals.items()):
        yield name, value
        kind = type(value)
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file and is_user_file(file) and not isinstance(value, torch.nn.Module | type):
            for inner, held in list(getattr(value, "__dict__", {}).items()):
                yield f"{name}.{inner}", held


def _graphs_behind(value: Any) -> tuple[int, int]:
    """Return how many marked graphs are reachable from `value`, and the bytes of its tensors that hold graphs."""
    if isinstance(value, torch.Tensor):
        tensors = [value]
    elif isinstance(value, list | tuple | deque):
        tensors = [item for item in list(value)[-2000:] if isinstance(item, torch.Tensor)]
    elif isinstance(value, dict):
        flat: list[Any] = []
        for item in list(value.values())[:100]:
            flat.extend(item[-2000:] if isinstance(item, list) else [item])
        tensors = [item for item in flat if isinstance(item, torch.Tensor)]
    else:
        return 0, 0
    tensors = [tensor for tensor in tensors if tensor.grad_fn is not None]
    seen: set[Any] = set()
    pending: deque[Any] = deque(tensor.grad_fn for tensor in tensors)
    marked = 0
    while pending and len(seen) < _NODES:
        node = pending.popleft()
        if node in seen:
            continue
        seen.add(node)
        marked += _MARK in node.metadata
        pending.extend(follower for follower, _ in node.next_functions if follower is not None)
    return marked + (len(tensors) if len(tensors) > marked > 0 else 0), sum(tensor.nbytes for tensor in tensors)


def _keeping_line(frame: FrameType, name: str) -> Frame | None:
    """Return the line that adds to `name`: `name.append(...)`, `name += ...`, `name = name + ...`."""
    code = frame.f_code
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return None
    wanted = name.rpartition(".")[2]
    places = [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr) and _adds_to(node, wanted)
    ]
    if not places:
        return None
    line = next((place for place in places if place >= code.co_firstlineno), places[0])
    return Frame(code.co_filename, line, code.co_qualname)


def _adds_to(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return _last_name(node.target) == name
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("append", "extend", "appendleft", "add") and _last_name(node.func.value) == name
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        sides = (_last_name(node.value.left), _last_name(node.value.right))
        return any(_last_name(target) == name for target in node.targets) and name in sides
    return False


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return _last_name(node.value) if isinstance(node, ast.Subscript) else ""
