"""Calls that warn, told whatever the filters make of the warning."""

import sys
import types
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Warnings", "has_shown", "has_warned"]


class Warnings:
    """Tells whether something warned while it was entered: it stands among the filters, and fits nothing.

    A warning that was shown before at its place may not come by.
    """

    def __init__(self) -> None:
        """Know of none yet."""
        self.seen = not isinstance(warnings.warn, types.BuiltinFunctionType)  # somebody's own asks no filters
        self.seen |= bool(getattr(sys.flags, "context_aware_warnings", False))
        self._entry: Any = ("ignore", self, Warning, None, 0)
        self._filters: Any = None

    def __enter__(self) -> "Warnings":
        self._filters = warnings.filters
        self._filters.insert(0, self._entry)
        return self

    def match(self, text: str) -> None:
        """Note a warning, and leave it to the filters that follow."""
        self.seen = True

    def __exit__(self, *raised: object) -> None:
        found = [at for at, each in enumerate(self._filters) if each is self._entry]
        for at in reversed(found):
            del self._filters[at]


def has_warned(*packages: str) -> bool:
    """Return whether modules of these packages hold warnings that were shown, and so do not come by again."""
    prefixes = tuple(f"{each}." for each in packages)
    names = [name for name in [*sys.modules] if name in packages or name.startswith(prefixes)]
    shown = (getattr(sys.modules[name], "__warningregistry__", None) or {} for name in names)
    return any(key != "version" for each in shown for key in each)


def has_shown(scopes: Mapping[types.CodeType, dict[str, Any]], codes: Iterable[types.CodeType]) -> bool:
    """Return whether a warning was shown before at a line of code that ran, and so does not come by again.

    `scopes`: code with the globals that it ran in; `codes`: all of it, that of modules among it.
    """
    if any(_is_of(code, scope) for code, scope in scopes.items()) or getattr(warnings, "onceregistry", None):
        return True
    modules = (getattr(module, "__dict__", {}) for module in [*sys.modules.values()])
    shown = [(str(one.get("__file__")), one) for one in modules if one.get("__warningregistry__")]
    return bool(shown) and any(code.co_filename == file and _is_of(code, one) for code in codes for file, one in shown)


def _is_of(code: types.CodeType, within: Mapping[str, Any]) -> bool:
    """Return whether a module holds a warning that was shown at a line of some code; one of a whole module has none."""
    shown = {key[2] for key in within.get("__warningregistry__") or {} if isinstance(key, tuple) and len(key) > 2}
    return bool(shown) and bool(shown & {0, *(line for _, _, line in code.co_lines())})
