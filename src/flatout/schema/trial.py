"""One cure tried on one script: what was offered, how it was measured, whether results stayed equal, the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "BUDGET_ENDED",
    "COMPILED_PYTHON",
    "EDITED_SOURCE",
    "RANKS",
    "Candidate",
    "Check",
    "Comparison",
    "Equality",
    "Equivalence",
    "Pair",
    "Selection",
    "Trial",
    "Untried",
    "Verdict",
]


BUDGET_ENDED = "the budget ended first"
"""Why a candidate was not tried."""

COMPILED_PYTHON = "compiled-python"
"""The fix that serves files with compiled functions."""

EDITED_SOURCE = "edited-source"
"""The fix whose settings are an edit of the script's source: a recipe may hold several."""


RANKS = "ranks"
"""In place of a fix: the same script on several ranks; its setting `number` says on how many."""


class Equivalence(StrEnum):
    """How equal training results must stay under a fix, the strictest first."""

    BITWISE = "BITWISE"
    ROUNDING = "ROUNDING"
    PRECISION = "PRECISION"
    STATISTICAL = "STATISTICAL"
    SEMANTIC = "SEMANTIC"

    @property
    def rank(self) -> int:
        """Return 0 for the strictest class, more for weaker ones."""
        return list(Equivalence).index(self)


class Verdict(StrEnum):
    """What came of a trial."""

    KEPT = "KEPT"
    NOT_FASTER = "NOT_FASTER"
    SLOWER = "SLOWER"
    RESULTS_DIFFER = "RESULTS_DIFFER"
    NOT_APPLIED = "NOT_APPLIED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    CRASHED = "CRASHED"
    TIMED_OUT = "TIMED_OUT"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True, slots=True)
class Selection:
    """A fix with its settings, as an order or a recipe names it; settings are plain JSON values."""

    fix: str
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the fix and its settings in one line: `loader-workers workers=2`; of an edit its name; `2 ranks`."""
        if self.fix == EDITED_SOURCE:
            return f"edit {self.settings.get('edit', '')}"
        if self.fix == RANKS:
            return f"{self.settings.get('number', '')} ranks"
        return " ".join([self.fix, *(f"{name}={value}" for name, value in self.settings.items())])

    @property
    def key(self) -> str:
        """Return what a recipe holds once: the fix, whatever its settings, or one edit."""
        return self.label if self.fix == EDITED_SOURCE else self.fix


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cure with settings, offered for this script."""

    selection: Selection
    equivalence: Equivalence  # what it promises; the trial tests it
    ceiling: float = 1.0  # the most it could give here, as a factor; 1.0: nothing
    least: float = 0.0  # what that must have become when its turn comes: in steps that others have shortened it is more
    switchable: bool = False  # can be switched on and off inside one process, between steps
    whole_epochs: bool = False  # what it shortens lies between the steps, too: blocks should be whole epochs
    in_steps: float = 1.0  # what it is hoped to give in the steps themselves, as a factor
    reasons: tuple[str, ...] = ()  # codes of the findings it addresses
    weakest: Equivalence | None = None  # class that it may have instead, where nobody knows which one it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Untried:
    """A fix that addresses a finding and was not tried."""

    fix: str
    reason: str  # in words
    equivalence: Equivalence | None = None  # of a fix that may act here, and keeps results less equal than asked for
    ceiling: float = 1.0  # the most that such a fix could give, as a factor
    findings: tuple[str, ...] = ()  # codes of those that it addresses


@dataclass(frozen=True, slots=True)
class Pair:
    """Two neighbouring blocks of steps: mean milliseconds a step without and with the candidate."""

    baseline_ms: float
    candidate_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the pairs say: `speedup` is exp(mean log ratio), `low` and `high` its 95 % interval."""

    pairs: tuple[Pair, ...]
    speedup: float
    low: float
    high: float
    decision: str  # "faster", "slower", "not faster", "undecided"
    looks: int = 0  # looks at the data that were paid for
    alpha: float = 0.0  # error probability spent on this candidate
    of_epochs: bool = False  # each block was a whole epoch: a step's time holds its share of what lies between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One test of equal results: the worst value found and the limit it was held to."""

    name: str
    passed: bool
    value: float = 0.0
    limit: float = 0.0
    detail: str = ""  # in words: what differs first, or what was covered
    step: int | None = None  # the optimizer step it speaks of


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """How equal training results were under a candidate; `equal` is None when it could not be judged."""

    claimed: Equivalence
    equal: bool | None
    checks: tuple[Check, ...] = ()
    reason: str = ""  # in words: what differs, or why it could not be judged
    deterministic: bool = True  # the untouched script gives the same bits twice
    num_steps: int = 0  # steps compared
    losses: tuple[float, ...] = ()  # of the untouched script, step by step, up to the first that is no number
    candidate_losses: tuple[float, ...] = ()  # of the same steps under the candidate and the fixes of its base


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate with everything that was measured of it, and the verdict."""

    number: int
    candidate: Candidate
    verdict: Verdict
    reason: str = ""
    comparison: Comparison | None = None
    equality: Equality | None = None
    hits: Mapping[str, int] = field(default_factory=dict)  # how often each of its seams was passed
    base: tuple[Selection, ...] = ()  # the fixes that both arms had
    wall_s: float = 0.0
    warmup_s: float = 0.0  # once, at the start of a training under it (compilation, search)
