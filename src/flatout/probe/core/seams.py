"""The only place that replaces attributes of other people's modules: wrap by dotted name, count hits, undo in reverse.

A dotted name is `package.module:Class.attribute`. The same name may be wrapped again; undoing restores the exact
object that was there before, in reverse order, unless the script has replaced it since (then it is left alone).
"""

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["Hits", "Seams", "dressed"]

_ABSENT = object()


class Hits:
    """How often one seam was passed."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        """Start at zero."""
        self.count = 0


class Seams:
    """The replacements that are in force in this process."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._undo: list[tuple[Any, str, Any, Any]] = []
        self._hits: dict[str, Hits] = {}

    def wrap(self, dotted: str, make: Callable[[Callable[..., Any], Hits], Callable[..., Any]]) -> bool:
        """Replace what `dotted` names by `make(original, hits)`; return False when there is no such attribute.

        The wrapper takes name, signature and qualified name of the original, so that pickling by name still works
        for functions at module level.
        """
        module_name, _, path = dotted.partition(":")
        try:
            owner: Any = importlib.import_module(module_name)
            *parents, name = path.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            original = getattr(owner, name)
        except (ImportError, AttributeError):
            return False
        original = getattr(original, "__func__", original)  # of a class method
        hits = self._hits.setdefault(dotted, Hits())
        wrapper = make(original, hits)
        if callable(original):
            functools.update_wrapper(wrapper, original)
            vars(wrapper)["__prepare_scriptable__"] = lambda: original  # what `torch.jit.script` compiles
        self.replace(owner, name, wrapper)
        home = sys.modules.get(getattr(original, "__module__", None) or "")
        if home is not None and vars(home).get(name) is original:  # where pickle looks for it
            self.replace(home, name, wrapper)
        return True

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value` until `undo`; static and class methods stay what they are."""
        before = vars(owner).get(name, _ABSENT) if hasattr(owner, "__dict__") else getattr(owner, name, _ABSENT)
        kind = type(inspect.getattr_static(owner, name, None)) if inspect.isclass(owner) else None
        if kind in (staticmethod, classmethod):
            value = kind(value)
        setattr(owner, name, value)
        self._undo.append((owner, name, before, value))

    def undo(self) -> None:
        """Put everything back, the last replacement first."""
        while self._undo:
            owner, name, before, ours = self._undo.pop()
            if vars(owner).get(name, _ABSENT) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def hits(self) -> dict[str, int]:
        """Return how often each seam was passed, by dotted name."""
        return {dotted: hits.count for dotted, hits in self._hits.items()}


def dressed(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Give a wrapper the name and attributes of what it wraps, Dynamo's included."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        with contextlib.suppress(AttributeError, TypeError):
            setattr(wrapper, name, getattr(original, name))
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    return wrapper
