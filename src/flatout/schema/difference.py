"""What changed between two sets of recordings: the step, its phases, the findings, the surroundings."""

from dataclasses import dataclass

from flatout.schema.finding import Finding

__all__ = ["Change", "Difference", "Surrounding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A time before and after, in milliseconds a step; `low_ms` to `high_ms` is the 95 % interval of the change."""

    name: str  # a phase of the step
    before_ms: float
    after_ms: float
    low_ms: float
    high_ms: float

    @property
    def ms(self) -> float:
        """Return how much longer it takes after; less than 0 where it is shorter."""
        return self.after_ms - self.before_ms


@dataclass(frozen=True, slots=True)
class Surrounding:
    """One thing about machine, software or recording that is not the same on both sides."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two sets of recordings side by side; `ratio` is the step's time after, divided by that before."""

    script: str
    num_before: int  # recordings
    num_after: int
    num_starts: int = 0  # of both sides, side by side in turns; 0: what is compared are recordings
    num_pairs: int = 0  # of neighbouring blocks of steps, in all starts
    before_ms: float  # geometric mean of the recordings' mean steps
    after_ms: float
    ratio: float
    low: float  # 95 % interval of `ratio`
    high: float
    noise: float  # standard deviation that the interval is made of, as a share: of a recording's step, a start's ratio
    chance: float  # probability of a ratio as large or larger if nothing had changed, one-sided
    phases: tuple[Change, ...] = ()
    came: tuple[Finding, ...] = ()  # found after, not before
    went: tuple[Finding, ...] = ()  # found before, not after
    surroundings: tuple[Surrounding, ...] = ()
    samples_before: float | None = None  # a step; both are set where they differ, and times are of equal samples
    samples_after: float | None = None
