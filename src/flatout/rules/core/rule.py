"""What a rule is: a fault with a code, a pure check, and the examples that are its tests."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass

from flatout.rules.core.example import Example
from flatout.rules.core.measured import measured_section
from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.run import Run

__all__ = ["Check", "Rule"]

Check = Callable[[Run, Breakdown, tuple[Ceiling, ...]], Finding | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One fault that flatout looks for.

    `name` names the fault, never the cure. `preview` marks a rule that no real recording on the hardware it
    speaks of has confirmed yet: it is shown, and marked so.
    """

    code: str
    name: str
    check: Check
    fires_on: tuple[Example, ...]
    quiet_on: tuple[Example, ...]
    preview: bool = False

    @property
    def page(self) -> str:
        """Return the rule's page: the docstring of the module that `check` was written in."""
        return inspect.cleandoc(sys.modules[self.check.__module__].__doc__ or "")

    @property
    def measured(self) -> str:
        """Return the last section of the page: what was measured of this fault, where; "" where the page says it."""
        return measured_section(self.code, self.page)

    @property
    def summary(self) -> str:
        """Return the first sentence of the page: the fault in one line."""
        return self.page.partition("\n")[0]
