"""One fault, one file: the rules, and what applies them. Pure functions; no torch, nothing printed."""

from flatout.rules.catalog import catalog
from flatout.rules.example import Example, example, line
from flatout.rules.find import Examination, examine, find
from flatout.rules.rule import Rule

__all__ = ["Examination", "Example", "Rule", "catalog", "examine", "example", "find", "line"]
