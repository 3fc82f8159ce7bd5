"""Names of rules and fixes as people type them: by code or by name, in any case."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from flatout.errors import UsageError
from flatout.fixes.core.catalog import fixes
from flatout.fixes.core.fix import Fix
from flatout.rules.core.catalog import catalog
from flatout.rules.core.rule import Rule

__all__ = ["fix_names", "page_named", "rule_codes", "rule_named"]


def rule_named(word: str) -> Rule:
    """Return the rule with this code or name.

    Raises:
        UsageError: there is none; close matches are named.
    """
    known = _rules()
    wanted = _spelt(word)
    if wanted in known:
        return known[wanted]
    raise _unknown(f"There is no rule {word!r}.", wanted, {name: _title(rule) for name, rule in known.items()})


def rule_codes(words: Iterable[str]) -> frozenset[str]:
    """Return the codes of the rules that `words` name.

    Raises:
        UsageError: one of them names none.
    """
    return frozenset(rule_named(word).code for word in words)


def fix_names(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the fixes that `words` name; a rule stands for the fixes that address it, and for its edit.

    Fixes that are tried on request only have to be requested by their own names.

    Raises:
        UsageError: one of them names neither, or a rule that no fix addresses.
    """
    found: set[str] = set()
    for word in words:
        page = page_named(word)
        if isinstance(page, Fix):
            named = {page.name}
        else:
            named = {fix.name for fix in fixes() if page.code in fix.addresses and not fix.on_request}
            named |= {page.code} if page.edits else set()  # the rule's own change of the source
        if not named:
            raise UsageError(
                f"No fix addresses {_title(page)}.",
                "Its page says what to change by hand.",
                f"Show it: `flatout explain {page.name}`.",
            )
        found |= named
    return frozenset(found)


def page_named(word: str) -> Rule | Fix:
    """Return the rule or the fix of that name.

    Raises:
        UsageError: there is neither; close matches of both are named.
    """
    known: dict[str, Rule | Fix] = {fix.name: fix for fix in fixes()} | _rules()
    wanted = _spelt(word)
    if wanted in known:
        return known[wanted]
    raise _unknown(f"There is no rule or fix {word!r}.", wanted, {name: _title(page) for name, page in known.items()})


def _rules() -> dict[str, Rule]:
    return {name.lower(): rule for rule in catalog() for name in (rule.code, rule.name)}


def _spelt(word: str) -> str:
    return word.strip().lower().replace("_", "-")


def _title(page: Rule | Fix) -> str:
    return page.name if isinstance(page, Fix) else f"{page.code} {page.name}"


def _unknown(fact: str, wanted: str, titles: Mapping[str, str]) -> UsageError:
    """Return the error that names what may have been meant."""
    close = list(dict.fromkeys(titles[name] for name in get_close_matches(wanted, titles)))
    return UsageError(
        fact, advice=f"Did you mean {' or '.join(close)}?" if close else "`flatout explain` lists them all."
    )
