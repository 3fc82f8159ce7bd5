"""What analysis and rules say about a Run: the account, the ceilings, the findings."""

from dataclasses import dataclass

from flatout.schema.facts import Ceiling
from flatout.schema.phase import Phase
from flatout.schema.run import Frame

__all__ = ["Argument", "Breakdown", "Ceiling", "Evidence", "Finding", "OutsideShare", "PhaseShare"]


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """One phase of the step: mean milliseconds, and its share of the step (0 to 1)."""

    phase: Phase
    ms: float  # mean of the steady steps
    share: float  # of the step, 0 to 1


@dataclass(frozen=True, slots=True)
class OutsideShare:
    """One phase outside the steps: seconds, and its share of the whole recorded wall time (0 to 1)."""

    phase: Phase
    s: float  # seconds in all
    share: float  # of the whole recording, 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """The closed time account of a Run over its steady steps."""

    phases: tuple[PhaseShare, ...]  # every phase of STEP_PHASES, in that order; shares sum to 1
    outside: tuple[OutsideShare, ...] = ()  # every phase of OUTSIDE_PHASES, in that order
    measured: int = 0  # steady steps the account is made of
    steps_each: int = 1  # steps that each entry of `step_ms` is the mean of
    warmup: int = 0  # steps left out at the start
    warmup_s: float = 0.0
    median_ms: float = 0.0  # of the steady steps
    mean_ms: float = 0.0
    p5_ms: float = 0.0  # 5 % of the steady steps take less
    p95_ms: float = 0.0  # 95 % of the steady steps take less
    spread: float = 0.0  # of the middle of the steady steps, whatever the rest do: 1.4826 * MAD / median
    samples_per_s: float | None = None  # None where the size of a batch is not known
    wall_s: float = 0.0  # the whole recording, launch to end
    loop_s: float = 0.0  # the recording without start-up: what a longer training consists of
    step_ms: tuple[float, ...] = ()  # the steady steps, one by one

    def share(self, phase: Phase) -> float:
        """Return the share of the step that `phase` takes, 0 when it does not occur."""
        return next((part.share for part in self.phases if part.phase == phase), 0.0)

    def ms(self, phase: Phase) -> float:
        """Return the mean milliseconds a step spends in `phase`."""
        return next((part.ms for part in self.phases if part.phase == phase), 0.0)

    def outside_s(self, phase: Phase) -> float:
        """Return the seconds spent outside the steps in `phase`."""
        return next((part.s for part in self.outside if part.phase == phase), 0.0)

    def loop_share(self, seconds: float) -> float:
        """Return `seconds` as a share of the recording without start-up."""
        return seconds / self.loop_s if self.loop_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number behind a finding, with its unit."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Argument:
    """One thing that was measured of the call that a finding names, for whoever writes another one in its place."""

    name: str  # "shape", "dtype", "operation"
    value: str | int | float | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault, here: its share, the most that removing it could give, its place in the user's code."""

    code: str  # of the rule: "IN003"
    name: str  # of the rule: "slow-sample-line"
    phase: Phase  # where the time goes
    share: float  # of the step, or of the recording without start-up when the phase lies outside the steps
    max_speedup: float  # the most that removing it could give, as a factor; a bound, not a promise
    bound_by: str = ""  # why that is not what the share alone would give; "" where it is
    message: str  # the finding in words
    location: Frame | None = None  # the line of the user's own code, where there is one
    evidence: tuple[Evidence, ...] = ()  # the numbers behind it
    fixes: tuple[str, ...] = ()  # names of the fixes that address it; in a report, of those that may act on the script
    optional: bool = False  # no fault: the method may need it, and to leave it out changes the training
    arguments: tuple[Argument, ...] = ()  # what was measured of the call at its line: shapes, types, counts

    def argument(self, name: str) -> str | int | float | tuple[int, ...] | None:
        """Return what was measured under that name, None where nothing was."""
        return next((each.value for each in self.arguments if each.name == name), None)
