"""The fixes that exist: every file of `flatout/fixes` that defines `FIX`, and those of packages named by the user.

`FLATOUT_EXTRA_FIXES` holds module names, separated by commas: use it to try a fix of your own. Each module defines
`FIX`, or several in `FIXES`, and must be importable both by flatout and by the script.
"""

import functools
import importlib
import os
import pkgutil
from pathlib import Path

from flatout.fixes.core.fix import Fix
from flatout.fixes.trial.fixed_batch import HELD_BATCH
from flatout.fixes.trial.fixed_samples import HELD_SAMPLES
from flatout.schema.trial import Selection

__all__ = ["EXTRA_VARIABLE", "find_arm", "find_fix", "fixes", "from_second_pass"]

EXTRA_VARIABLE = "FLATOUT_EXTRA_FIXES"


@functools.cache
def fixes() -> tuple[Fix, ...]:
    """Return every fix, by name."""
    files = pkgutil.iter_modules([str(Path(__file__).parents[1])])
    modules = [importlib.import_module(f"flatout.fixes.{file.name}") for file in files if not file.ispkg]
    extra = [name.strip() for name in os.environ.get(EXTRA_VARIABLE, "").split(",") if name.strip()]
    modules += [importlib.import_module(name) for name in extra]
    found = [fix for module in modules for fix in (*getattr(module, "FIXES", ()), getattr(module, "FIX", None)) if fix]
    return tuple(sorted(found, key=lambda fix: fix.name))


def find_fix(name: str) -> Fix | None:
    """Return the fix of that name, None when there is none."""
    return next((fix for fix in fixes() if fix.name == name), None)


def from_second_pass(selection: Selection) -> bool:
    """Return whether a fix gains from the second pass over the data on, and little or nothing in the first."""
    fix = find_fix(selection.fix)
    return fix is not None and fix.from_second_pass


def find_arm(name: str) -> Fix | None:
    """Return what a trial switches on by that name: a fix, or what is held to measure a ceiling."""
    return next((each for each in (HELD_BATCH, HELD_SAMPLES) if each.name == name), None) or find_fix(name)
