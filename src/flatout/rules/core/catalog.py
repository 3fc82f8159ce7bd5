"""All existing rules: every file of `flatout/rules` named `<code>_<name>.py`."""

import functools
import importlib
import pkgutil
import re
from pathlib import Path

from flatout.rules.core.rule import Rule

__all__ = ["catalog", "rule_of"]

FILE_NAME = re.compile(r"[a-z]{2}\d{3}_\w+")


@functools.cache
def catalog() -> tuple[Rule, ...]:
    """Return every rule, in the order of their codes."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parents[1])])]
    found = [importlib.import_module(f"flatout.rules.{name}") for name in names if FILE_NAME.fullmatch(name)]
    return tuple(sorted((module.RULE for module in found), key=lambda rule: rule.code))


def rule_of(code: str) -> Rule | None:
    """Return the rule with that code, None when there is none."""
    return next((rule for rule in catalog() if rule.code == code), None)
