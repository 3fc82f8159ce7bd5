"""What a rule is: a fault with a code, a check without side effects, and the examples that are its tests."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flatout.rules.core.example import Example
from flatout.rules.core.measured_section import measured_section
from flatout.rules.facts.input_stages import Stage
from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.run import Run

__all__ = ["Check", "Rule", "StageOf"]

Check = Callable[[Run, Breakdown, tuple[Ceiling, ...]], Finding | None]
StageOf = Callable[[Finding, Run], Stage | None]
"""Maps a finding to the stage of making a batch that it is about; None where the recording does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One fault that flatout looks for; other rules are named by their `name`.

    Attributes:
        name: the fault, never the cure.
        preview: no real recording on its kind of hardware has confirmed it yet; its findings are marked as preview.
        general: says that steps wait, not why; its finding is dropped where a cause explains most of the wait.
        subsumes: rules whose findings at the same line are dropped, because this one is more specific.
        after: rules whose findings come first where they give nearly as much: their cures make this one unnecessary.
        after_at_same_line: `after` holds only for findings at the same line.
        stage: the stage of making a batch that it is about; measured ceilings bound what it promises.
        takes_whole_stage: its promise assumes that nothing of the stage is left.
        shown_by_few: reported even for a recording of very few steps.
        settings: by framework, the framework's own setting for the advice.
        setting_applies: whether those settings apply to a recording; always where it is None.
        edits: the edits of the script that may fix it, each a key of `flatout.edits.finding_cures.EDITS` and what it is
            given; the first ones are tried first.
        no_cure: why neither a fix nor an edit cures it, in one sentence; "" where one does.
    """

    code: str
    name: str
    check: Check
    fires_on: tuple[Example, ...]
    quiet_on: tuple[Example, ...]
    preview: bool = False
    general: bool = False
    subsumes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    after_at_same_line: bool = False
    stage: Stage | StageOf | None = None
    takes_whole_stage: bool = False
    shown_by_few: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    setting_applies: Callable[[Run], bool] | None = None
    edits: tuple[tuple[str, ...], ...] = ()
    no_cure: str = ""

    @property
    def page(self) -> str:
        """Return the rule's page: the docstring of the module that `check` was written in."""
        return inspect.cleandoc(sys.modules[self.check.__module__].__doc__ or "")

    @property
    def measured(self) -> str:
        """Return the last section of the page: the measurements of this fault; "" where the page itself has them."""
        return measured_section(self.code, self.page)

    @property
    def summary(self) -> str:
        """Return the first sentence of the page: the fault in one line."""
        return self.page.partition("\n")[0]
