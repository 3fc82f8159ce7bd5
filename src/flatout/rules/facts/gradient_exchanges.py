"""What a gradient exchange between ranks costs, separated from waiting for the last rank.

A rank that arrives early waits inside the exchange. The last one does not wait: of the time that an exchange runs
without overlap, the minimum over the ranks is the exchange itself, and the excess of the other ranks is waiting.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from flatout.schema.run import Exchange, Run

__all__ = ["Exposed", "Uneven", "exposed", "last_by_size"]

MIN_EXCHANGES = 10
MIN_DIFFERENCE = 1.1  # largest against smallest batch of a step
MIN_EXPLAINED = 0.8
MOST_BY_ONE = 0.8  # a rank that nearly always has the largest batch is a straggler, which DI001 reports


@dataclass(frozen=True, slots=True)
class Exposed:
    """The exchanges that every rank has timed."""

    seen: Exchange  # of the first rank
    n: int
    itself_s: float  # median over exchanges of the minimum over ranks
    waiting_s: float  # mean over exchanges and ranks of the time above the minimum
    per_step: float  # exchanges in a step
    step_s: float

    @property
    def share(self) -> float:
        """Return the share of the deep run's step in which only the exchange itself runs."""
        return min(1.0, self.itself_s * self.per_step / self.step_s) if self.step_s > 0 else 0.0


def exposed(run: Run) -> Exposed | None:
    """Return the exchanges of all ranks together; None with one rank, or when too few were timed by all of them."""
    seen = [rank.exchange for rank in run.ranks if rank.exchange is not None]
    if len(seen) < 2 or len(seen) != len(run.ranks):
        return None
    numbers = set.intersection(*(set(each.exposed_s) for each in seen))
    if len(numbers) < MIN_EXCHANGES:
        return None
    least = [min(each.exposed_s[number] for each in seen) for number in numbers]
    return Exposed(
        seen=seen[0],
        n=len(numbers),
        itself_s=median(least),
        waiting_s=fmean(_mean_over(seen, number) for number in numbers) - fmean(least),
        per_step=median(each.exchanges for each in seen),
        step_s=median(each.step_s for each in seen),
    )


def _mean_over(seen: Sequence[Exchange], number: str) -> float:
    return fmean(each.exposed_s[number] for each in seen)


@dataclass(frozen=True, slots=True)
class Uneven:
    """How many steps had batches of different size, and in how many the rank with the largest came last."""

    steps: int
    explained: int


def last_by_size(run: Run) -> Uneven | None:
    """Return how often the rank with the largest batch came last; None if not nearly always, or mostly one rank."""
    seen = [rank.exchange for rank in run.ranks if rank.exchange is not None]
    if len(seen) < 2 or len(seen) != len(run.ranks):
        return None
    numbers = set.intersection(*(set(each.exposed_s) & set(each.elements) for each in seen))
    sizes = {number: [each.elements[number] for each in seen] for number in numbers}
    uneven = [number for number, each in sizes.items() if max(each) >= MIN_DIFFERENCE * max(1, min(each))]
    largest = [max(range(len(seen)), key=lambda rank: sizes[number][rank]) for number in uneven]
    last = [min(range(len(seen)), key=lambda rank: seen[rank].exposed_s[number]) for number in uneven]
    explained = sum(a == b for a, b in zip(largest, last, strict=True))
    if len(uneven) < MIN_EXCHANGES or explained < MIN_EXPLAINED * len(uneven):
        return None
    by_one = max(Counter(largest).values()) > MOST_BY_ONE * len(uneven)
    return None if by_one else Uneven(len(uneven), explained)
