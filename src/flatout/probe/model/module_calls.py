"""Calls of chosen modules that go through a function of ours, kept where no copy of a module takes it along.

`Module.__call__` asks `self` for `_compiled_call_impl`, the place of `Module.compile()`. An entry in the module's own
`__dict__` would be copied by whatever copies that: deepcopy of a parametrized module, `__dict__.update`, a replica.
The copy would then run the original. So the class gets a descriptor, which is told what module asks, and answers for
the chosen ones only. Hooks would put Module on its slow path (about 10 us a call) and are copied and pickled, too.
"""

import inspect
import weakref
from collections.abc import Callable
from typing import Any

from flatout.probe.core.seams import Seams

__all__ = ["OwnCalls", "slots_of"]

_NAME = "_compiled_call_impl"


class OwnCalls:
    """The modules that are called through a function of ours, held weakly."""

    def __init__(self) -> None:
        """Choose no module yet."""
        self._classes = Seams()
        self._calls: dict[int, tuple[weakref.ref[Any], Callable[..., Any]]] = {}

    def beneath(self, module: Any) -> Callable[[Any], Any]:
        """Return the function that gives what a module of this class was compiled to in place, None where it was not.

        The class is made ready for calls of ours by it.
        """
        kind = type(module)
        above = inspect.getattr_static(kind, _NAME, None)
        slot = self._standing(above)
        if slot is None:
            slot = _Slot(self._calls, above)
            self._classes.replace(kind, _NAME, slot)
        return slot.beneath

    def put(self, module: Any, call: Callable[..., Any]) -> None:
        """Have `module(...)` call `call(...)`, and the same of no other module."""
        self.beneath(module)
        self._calls[id(module)] = (weakref.ref(module), call)

    def take(self, module: Any) -> None:
        """Leave `module` to itself again."""
        self._calls.pop(id(module), None)

    def has(self, module: Any) -> bool:
        """Return whether calls of `module` go through a function of ours."""
        found = self._calls.get(id(module))
        return found is not None and found[0]() is module

    def undo(self) -> None:
        """Take the descriptors off the classes again."""
        self._calls.clear()
        self._classes.undo()

    def forget_gone(self) -> None:
        """Drop what is known of modules that the script has let go."""
        for key in [key for key, (ref, _) in self._calls.items() if ref() is None]:
            del self._calls[key]

    def _standing(self, slot: Any) -> "_Slot | None":
        while isinstance(slot, _Slot):
            if slot.calls is self._calls:
                return slot
            slot = slot.above
        return None


def slots_of(module: Any) -> list[Any]:
    """Return what stands for calls of ours on the classes of a module and of those inside it: no part of either."""
    kinds = {kind for one in module.modules() for kind in type(one).__mro__}
    return [slot for kind in kinds if isinstance(slot := vars(kind).get(_NAME), _Slot)]


class _Slot:
    """`_compiled_call_impl` of a class: an answer of ours for chosen modules, for others what it would be."""

    __slots__ = ("above", "calls")

    def __init__(self, calls: dict[int, tuple[weakref.ref[Any], Callable[..., Any]]], above: Any) -> None:
        self.calls = calls
        self.above = above  # what the class had, or inherited

    def __get__(self, module: Any, kind: type | None = None) -> Any:
        if module is None:
            return None
        found = self.calls.get(id(module))
        if found is not None and found[0]() is module:
            return found[1]
        return self.beneath(module)

    def __set__(self, module: Any, value: Any) -> None:
        module.__dict__[_NAME] = value

    def __delete__(self, module: Any) -> None:
        try:
            del module.__dict__[_NAME]
        except KeyError:
            raise AttributeError(_NAME) from None

    def beneath(self, module: Any) -> Any:
        """Return what this descriptor hides."""
        if isinstance(self.above, _Slot):
            return self.above.__get__(module)
        return module.__dict__.get(_NAME, self.above)

    def __reduce__(self) -> Any:
        return (type(None), ())  # a class that is pickled by value has what every class has
