"""The fixes that exist: every file of this folder that defines `FIX`."""

import functools
import importlib
import pkgutil
from pathlib import Path

from flatout.fixes.fix import Fix

__all__ = ["find_fix", "fixes"]

_NOT_FIXES = {"fix", "catalog", "site", "alternation", "apply"}


@functools.cache
def fixes() -> tuple[Fix, ...]:
    """Return every fix, by name."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    modules = [importlib.import_module(f"flatout.fixes.{name}") for name in names if name not in _NOT_FIXES]
    return tuple(sorted((module.FIX for module in modules if hasattr(module, "FIX")), key=lambda fix: fix.name))


def find_fix(name: str) -> Fix | None:
    """Return the fix of that name, None when there is none."""
    return next((fix for fix in fixes() if fix.name == name), None)
