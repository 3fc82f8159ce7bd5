"""Settings whose cost the deep run has measured, in alternating steps with and without them."""

import math

from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Run, SettingTrial

__all__ = ["computing", "is_sure", "measured", "priced"]

MIN_STEPS = 8  # of each kind
SPREADS = 4.0  # standard deviations above chance: reached by chance in three of 100,000
MIN_ORDERED = 0.9  # with 8 of each kind and no difference, chance reaches that in 3 of 1,000 (Mann-Whitney, one-sided)


def computing(breakdown: Breakdown) -> float:
    """Return the share of the step in forward, backward and optimizer; measured prices are shares of that time."""
    return sum(breakdown.share(phase) for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER))


def priced(run: Run, switch: str) -> SettingTrial | None:
    """Return the price of `switch` where it was measured and nearly all pairs of steps agree."""
    price = measured(run, switch)
    return price if price is not None and price.ordered >= MIN_ORDERED else None


def is_sure(price: SettingTrial) -> bool:
    """Return whether so many agreeing pairs are very unlikely by chance, however much single steps scatter.

    Without a difference, half of the pairs are ordered either way, with the spread of Mann and Whitney's U (1947).
    """
    spread = math.sqrt((2 * price.steps + 1) / 12) / price.steps
    return price.ordered >= 0.5 + SPREADS * spread


def measured(run: Run, switch: str) -> SettingTrial | None:
    """Return the comparison of steps with and without `switch`, however certain; None where there is none."""
    prices = run.causes.prices if run.causes else ()
    return next((price for price in prices if price.switch == switch and price.steps >= MIN_STEPS), None)
