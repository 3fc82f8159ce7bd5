"""Autograd graphs of past steps that are still alive, and the name that keeps them.

The graph of every loss gets a small mark, in the metadata of its topmost nodes, which lives as long as one of them;
several nodes, because what is kept may be the loss before it was scaled, or what it was made from. At the end the
variables of the user's frames are searched for tensors whose graphs carry many such marks.
"""

import ast
import contextlib
import linecache
import re
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

import torch

from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import is_user_file
from flatout.schema.run import Frame, Retained

__all__ = ["PROBE", "RetentionWatch"]

_LIMIT = 400  # losses marked
_MARKED_NODES = 12  # topmost nodes of a graph that carry its mark
_NODES = 20_000  # graph nodes walked for one name
_ITEMS = 2000  # last items of a container looked at
_RECENT = 12  # steps whose graphs must all be alive for a look before the end
_MODULES = 2000  # of one model
_OF_TORCH = frozenset(("_parameters", "_buffers", "_modules"))
_DIGITS = re.compile(r"\.(\d+)(?=\.|$)")
_MARK = "flatout"


class _Mark:
    """Lives as long as the graph nodes it hangs on."""

    __slots__ = ("__weakref__",)


class RetentionWatch:
    """Marks the graphs of losses and finds who keeps them."""

    def __init__(self) -> None:
        """Mark nothing yet."""
        self._marks: list[weakref.ref[_Mark]] = []
        self._seen: tuple[Retained, ...] = ()
        self.found: tuple[Retained, ...] = ()

    def mark(self, tensor: Any) -> None:
        """Mark the graph below `tensor`, which `backward()` is about to be called on."""
        node = getattr(tensor, "grad_fn", None)
        if node is None or len(self._marks) >= _LIMIT:
            return
        mark = _Mark()
        pending, seen = deque([node]), 0
        while pending and seen < _MARKED_NODES:
            node = pending.popleft()
            if node.next_functions and _MARK not in node.metadata:  # a parameter's own node outlives its graphs
                node.metadata[_MARK] = mark
                seen += 1
                pending.extend(_inputs(node))
        self._marks.append(weakref.ref(mark))

    def glance(self, frame: FrameType | None) -> None:
        """Look once whether the graphs of the last steps are all alive: a list that is emptied later shows it too."""
        recent = self._marks[-2 - _RECENT : -2]
        if not self._seen and len(recent) == _RECENT and all(mark() is not None for mark in recent):
            self._seen = self._search(frame, _RECENT, _RECENT)

    def end(self, frame: FrameType | None) -> None:
        """Look for the last time, while the frames of the training are there."""
        self.found = self.find(frame)

    def find(self, frame: FrameType | None) -> tuple[Retained, ...]:
        """Return the names, seen from `frame` outwards, behind which graphs of past steps are or were alive."""
        older = self._marks[:-2]
        alive = sum(mark() is not None for mark in older)
        if len(older) < 5 or alive < len(older) / 2:
            return self._seen
        return self._search(frame, alive, len(older))

    def _search(self, frame: FrameType | None, alive: int, of_steps: int) -> tuple[Retained, ...]:
        found = {}
        while frame is not None:
            if is_user_file(frame.f_code.co_filename):
                for name, value, files in _names(frame):
                    graphs, num_bytes = _graphs_behind(value)
                    if graphs >= of_steps / 4:
                        place = _keeping_line(files, frame.f_code.co_firstlineno, name)
                        found[name] = Retained(
                            name=name, place=place, graphs=alive, of_steps=of_steps, num_bytes=num_bytes
                        )
            frame = frame.f_back
        return tuple(found.values()) or (Retained(name="", place=None, graphs=alive, of_steps=of_steps),)


def _inputs(node: Any) -> Iterator[Any]:
    return (follower for follower, _ in node.next_functions if follower is not None)


def _names(frame: FrameType) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Yield variables of a frame and attributes of the user's objects in it, with the files that may fill them.

    What a module keeps may be an attribute of any of the user's modules in it.
    """
    here = frame.f_code.co_filename
    for name, value in list(frame.f_locals.items()):
        yield name, value, (here,)
        for path, owner in _owners(value):
            file = getattr(sys.modules.get(type(owner).__module__), "__file__", None)
            if file and is_user_file(file) and not isinstance(owner, type):
                whole = _DIGITS.sub(r"[\1]", f"{name}.{path}" if path else name)
                own = dict(getattr(owner, "__dict__", {}))
                buffers = own.get("_buffers") if isinstance(owner, torch.nn.Module) else None
                for inner, held in [*own.items(), *(buffers or {}).items()]:
                    if inner not in _OF_TORCH:
                        yield f"{whole}.{inner}", held, (here, file)


def _owners(value: Any) -> list[tuple[str, Any]]:
    """Return a value and, of a module, those in it, by their paths."""
    if isinstance(value, torch.nn.Module):
        with contextlib.suppress(Exception):  # one that was never set up, or whose own method asks for more
            return list(islice(value.named_modules(), _MODULES))
    return [("", value)]


def _tensors(value: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield the tensors with graphs in a nest of containers."""
    if isinstance(value, torch.Tensor):
        if value.grad_fn is not None:
            yield value
    elif depth and isinstance(value, list | tuple | deque | set):
        for item in list(value)[-_ITEMS:]:
            yield from _tensors(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in list(value.values())[-_ITEMS:]:
            yield from _tensors(item, depth - 1)


def _graphs_behind(value: Any) -> tuple[int, int]:
    """Return how many marked graphs are reachable from `value`, and the bytes of its tensors that hold graphs."""
    tensors = list(_tensors(value))
    pending = deque(tensor.grad_fn for tensor in tensors)
    seen: set[Any] = set()
    marks: set[int] = set()
    while pending and len(seen) < _NODES:
        node: Any = pending.popleft()
        if node in seen:
            continue
        seen.add(node)
        mark = node.metadata.get(_MARK)
        if mark is None:
            pending.extend(_inputs(node))
        else:
            marks.add(id(mark))  # nothing below it belongs to another step
    return len(marks), sum(tensor.nbytes for tensor in tensors)


def _keeping_line(files: tuple[str, ...], first: int, name: str) -> Frame | None:
    """Return the line that adds to `name`: `name.append(...)`, `name += ...`, `name = name + ...`.

    Of several lines in the first file the first one from line `first` on counts.
    """
    wanted = name.rpartition(".")[2]
    for file in files:
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError):
            continue
        places = [(node.lineno, function) for node, function in _walk(tree) if _adds_to(node, wanted)]
        if places:
            line, function = next((place for place in places if place[0] >= first), places[0])
            return Frame(file, line, function)
    return None


def _walk(node: ast.AST, function: str = "<module>") -> Iterator[tuple[Any, str]]:
    """Yield every node below `node` with the qualified name of the function it is in."""
    for child in ast.iter_child_nodes(node):
        yield child, function
        inner = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            outer = "" if function == "<module>" else function + "."
            if outer and not isinstance(node, ast.ClassDef):
                outer = f"{function}.<locals>."
            inner = outer + child.name
        yield from _walk(child, inner)


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
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # names.setdefault(key, []).append(...)
        return _last_name(node.func.value)
    return _last_name(node.value) if isinstance(node, ast.Subscript) else ""


PROBE = Probe(
    name="retained-graphs",
    make=lambda deep: RetentionWatch(),
    backward=RetentionWatch.mark,
    step=lambda watch, step, number: watch.glance(sys._getframe(1)),
    stop=lambda watch: watch.end(sys._getframe(1)),
    causes={"retained": lambda watch: watch.found},
)
