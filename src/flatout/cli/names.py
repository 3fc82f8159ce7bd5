"""Names of rules as people type them: by code or by name, in any case."""

from collections.abc import Iterable
from difflib import get_close_matches

from flatout.errors import UsageError
from flatout.rules.catalog import catalog
from flatout.rules.rule import Rule

__all__ = ["rule_codes", "rule_named"]


def rule_named(word: str) -> Rule:
    """Return the rule with this code or name.

    Raises:
        UsageError: there is none; close matches are named.
    """
    known = {name.lower(): rule for rule in catalog() for name in (rule.code, rule.name)}
    wanted = word.strip().lower().replace("_", "-")
    if wanted in known:
        return known[wanted]
    close = [f"{rule.code} {rule.name}" for rule in _unique(known[name] for name in get_close_matches(wanted, known))]
    advice = f"Did you mean {' or '.join(close)}?" if close else "`flatout explain` lists them all."
    raise UsageError(f"There is no rule {word!r}.", advice=advice)


def rule_codes(words: Iterable[str]) -> frozenset[str]:
    """Return the codes of the rules that `words` name.

    Raises:
        UsageError: one of them names none.
    """
    return frozenset(rule_named(word).code for word in words)


def _unique(rules: Iterable[Rule]) -> list[Rule]:
    return list({rule.code: rule for rule in rules}.values())
