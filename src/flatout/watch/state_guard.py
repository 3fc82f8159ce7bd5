"""What a stranger's code can be called with and have left no trace: everything that it reached, put back after it."""

import contextlib
import contextvars
import io
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from flatout.watch.components import attributes_of, is_filled, is_generator, is_own, module_of, names_in, parts
from flatout.watch.dataset_state import random_states, restore_random_states, undrawn
from flatout.watch.memory.layouts import is_plain_instance
from flatout.watch.own_generators import access, mark_of

__all__ = ["StateGuard", "streams_alone"]

_MOST = 5000  # items of one container
_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)

Place = tuple[Callable[[], Any], Any, Callable[[Any], Any]]
"""How what stands somewhere is read, what stood there, and how it is put back."""


_streams_alone: contextvars.ContextVar[bool] = contextvars.ContextVar("streams_alone", default=False)


@contextlib.contextmanager
def streams_alone() -> Iterator[None]:
    """Let nothing be put back but random streams and generators: a look is known to leave no other trace.

    What changes meanwhile is somebody else's doing, of a thread that fills a data set for instance.
    """
    token = _streams_alone.set(True)
    try:
        yield
    finally:
        _streams_alone.reset(token)


class StateGuard:
    """Remembers what `things` are made of, as a context: attributes, containers, closures, generators, files.

    At its end all of it and the global random streams are as they were; `changed` then says whether something of
    `things` had not been, `drew` whether numbers were drawn. Arrays that were written to stay so.
    """

    changed = drew = False

    def __init__(self, *things: Any) -> None:
        """Take what is to be left alone; `covered` has the addresses of what is put back whole."""
        self._things, self.covered = things, set[int]()

    def __enter__(self) -> "StateGuard":
        self._states = random_states()
        every = [part for thing in self._things for part in parts(thing)]
        if _streams_alone.get():
            every = [part for part in every if is_generator(part)]
        self._places = list[Place]()
        for part in every:
            self._places += _places(part)
            self.covered |= _covered(part)
        return self

    def __exit__(self, *_: object) -> None:
        self.drew = not undrawn(self._states, random_states())
        self.put_back()
        restore_random_states(self._states)

    def put_back(self) -> None:
        """Put everything back but the global random streams."""
        for read, before, write in self._places:
            if not _is(read(), before):
                self.drew = self.drew or type(before) is bytes
                self.changed = self.changed or type(before) is not bytes
                write(before)


def _covered(part: Any) -> set[int]:
    """Return the addresses of what is put back of `part`, whole."""
    found = {id(attributes_of(part))} if attributes_of(part) is not None else set()
    if type(part) in _CONTAINERS and len(part) <= _MOST:
        found.add(id(part))
    elif isinstance(part, types.FunctionType):
        found |= {id(cell) for cell in part.__closure__ or ()}
    elif is_plain_instance(type(part)):
        found.add(id(part))
    return found


def _is(now: Any, before: Any) -> bool:
    """Return whether two values are the same one; two containers: whether they hold the same ones in this order."""
    if type(now) in _CONTAINERS and type(before) is type(now):
        one, other = (value.items() if isinstance(value, dict) else value for value in (now, before))
        alike = zip(one, other, strict=False)
        if len(now) != len(before):
            return False
        if isinstance(now, dict):
            return all(left[0] is right[0] and left[1] is right[1] for left, right in alike)
        return now == before if isinstance(now, set) else all(left is right for left, right in alike)
    return now is before or (type(now) in (int, bytes) and now == before)


def _places(part: Any) -> Iterator[Place]:
    if isinstance(part, type):
        if is_own(module_of(part)):
            yield from (_of_attribute(part, name) for name in vars(part) if not name.startswith("__"))
        return
    inner = attributes_of(part)
    if inner is not None and not isinstance(part, types.ModuleType):
        yield _of_container(inner)
    if type(part) in _CONTAINERS and len(part) <= _MOST:
        yield _of_container(part)
    elif isinstance(part, types.FunctionType):
        yield from (_of_attribute(cell, "cell_contents") for cell in part.__closure__ or () if is_filled(cell))
        scope = part.__globals__
        yield from (_of_global(scope, name) for name in names_in(part.__code__).stored if name in scope)
    elif is_generator(part):
        yield _of_generator(part)
    elif isinstance(part, io.IOBase):
        yield from _of_file(part)


def _of_attribute(owner: Any, name: str) -> Place:
    held = vars(owner) if isinstance(owner, type) else None

    def read() -> Any:
        return getattr(owner, name, None) if held is None else held.get(name)

    return read, read(), lambda value: setattr(owner, name, value)


def _of_global(scope: dict[str, Any], name: str) -> Place:
    return lambda: scope.get(name), scope[name], lambda value: scope.update({name: value})


def _of_container(container: Any) -> Place:
    def write(before: Any) -> None:
        container.clear()
        (container.update if isinstance(container, dict | set) else container.extend)(before)

    return lambda: container, container.copy(), write


def _of_generator(generator: Any) -> Place:
    state, write = access(generator)
    before = state()
    return lambda: mark_of(state()), mark_of(before), lambda _: write(before)


def _of_file(file: Any) -> Iterator[Place]:
    try:
        yield file.tell, file.tell(), file.seek
    except (OSError, ValueError):  # a pipe, or closed
        return
