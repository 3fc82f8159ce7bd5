"""The fixes that a finding names, without those that cannot act on the recorded script."""

import functools
from collections.abc import Iterable
from dataclasses import replace

from flatout.fixes.core.catalog import find_fix
from flatout.schema.finding import Finding
from flatout.schema.run import Run

__all__ = ["with_offered_fixes"]


def with_offered_fixes(findings: Iterable[Finding], run: Run) -> tuple[Finding, ...]:
    """Return `findings`, each with those of its fixes that may act on the script that `run` recorded."""

    @functools.cache
    def may_act(name: str) -> bool:
        fix = find_fix(name)
        try:
            return fix is None or not fix.unfit(run)
        except Exception:  # numbers that no training has: the trial of it says what is wrong
            return True

    return tuple(replace(each, fixes=tuple(filter(may_act, each.fixes))) for each in findings)
