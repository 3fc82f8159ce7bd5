"""What lies between epochs as a share: of the recorded loop, or of an epoch whose end the deep run alone has seen."""

from dataclasses import dataclass

from flatout.analysis.epochs import project_epoch
from flatout.rules.core.sentence import of_loop
from flatout.schema.finding import Breakdown
from flatout.schema.run import Run
from flatout.units import format_seconds, format_share

__all__ = ["Between", "recorded", "seen_once"]


@dataclass(frozen=True, slots=True)
class Between:
    """Time between epochs: how much, how often it was seen, its share, and that in words."""

    seconds: float
    count: int
    share: float
    words: str


def recorded(breakdown: Breakdown, seconds: float, count: int) -> Between:
    """Return what the timed run has seen `count` times."""
    spent_s = min(seconds, breakdown.loop_s)
    return Between(spent_s, count, breakdown.loop_share(spent_s), of_loop(breakdown, spent_s, count))


def seen_once(run: Run, breakdown: Breakdown, seconds: float) -> Between | None:
    """Return `seconds` at the end of an epoch, as the deep run saw it; None where an epoch's length is not known."""
    epoch = project_epoch(run, breakdown) if run.epoch_end is not None else None
    if epoch is None or epoch.seconds <= 0:
        return None
    spent_s = min(seconds, epoch.seconds)
    share = spent_s / epoch.seconds
    words = (
        f"{format_share(share)} of each epoch ({format_seconds(spent_s)} of {format_seconds(epoch.seconds)}, n=1, "
        "in the deep run)"
    )
    return Between(spent_s, 1, share, words)
