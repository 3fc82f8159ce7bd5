"""The way from a data set to one of its objects, in the words of the script."""

import types
from collections import deque
from typing import Any

from flatout.watch.components import attributes_of
from flatout.watch.memory.object_kinds import referents

__all__ = ["path_to"]

_MOST = 300_000  # objects that are looked into: a second
_PASSED = {str, int, float, bytes, bool, type(None), types.ModuleType, types.CodeType, type}


def path_to(address: int, roots: list[tuple[str, Any]]) -> str:
    """Return how the object at `address` is reached from `roots`, as `Dataset.labels[3]`; the root's name where not."""
    queue: deque[tuple[str, Any]] = deque(roots)
    seen = {id(thing) for _, thing in roots}
    known = [name for name, thing in roots if id(thing) == address]
    for _ in range(0 if known else _MOST):
        if not queue:
            break
        name, thing = queue.popleft()
        for step, inner in _steps(thing):
            if id(inner) == address:
                return name + step
            if id(inner) not in seen and type(inner) not in _PASSED:
                seen.add(id(inner))
                queue.append((name + step, inner))
    return known[0] if known else roots[0][0] if roots else "a data set"


def _steps(thing: Any) -> list[tuple[str, Any]]:
    if isinstance(thing, dict):
        return [(f"[{key!r}]" if isinstance(key, str | int) else "[...]", value) for key, value in dict.items(thing)]
    if isinstance(thing, list | tuple):
        return [(f"[{place}]", value) for place, value in enumerate(thing)]
    if isinstance(thing, types.FunctionType):
        return [(".closure", cell) for cell in thing.__closure__ or ()] + [(".defaults", thing.__defaults__)]
    own = None if isinstance(thing, type) else attributes_of(thing)  # the collector may tell of its values alone
    found = [(f".{key}", value) for key, value in (own or {}).items()]
    named = {id(value) for _, value in found}
    inside = [one for one in referents(thing) if id(one) not in named and not isinstance(one, type)]
    return found + [("", one) for one in inside]
