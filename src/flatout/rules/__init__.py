"""One fault, one file: the rules, and what applies them. Pure functions; no torch, nothing printed."""

from flatout.rules.core.catalog import catalog
from flatout.rules.core.example import Example, example, line
from flatout.rules.core.find import Examination, examine, find
from flatout.rules.core.rule import Rule

__all__ = ["Examination", "Example", "Rule", "catalog", "examine", "example", "find", "line"]
