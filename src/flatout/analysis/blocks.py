"""In which order the two blocks of a pair are taken, and how long they are: drawn by lot, so that nothing keeps step.

A fixed order A B B A keeps step with whatever else the machine does regularly. Simulated with a load of one burst
every 1.2 to 20 blocks and blocks of equal length, a change that brings nothing was accepted in up to 48 % of the
trials at an error probability of 2 % (a job that wakes every second, blocks of a quarter of a second: a period of four
blocks). Order by lot and lengths that vary by half: up to 4 %, on average 1.4 %.
"""

import functools
import math
import random

__all__ = ["candidate_first", "stretch"]

_VARIES = 0.5  # of the log of a pair's length


@functools.lru_cache(maxsize=256)  # asked after every step
def candidate_first(number: int, seed: int = 0) -> bool:
    """Return whether pair `number` takes the block with the candidate first; `seed` is one for each trial."""
    return random.Random(f"order {seed} {number}").random() < 0.5


@functools.lru_cache(maxsize=256)
def stretch(number: int, seed: int = 0) -> float:
    """Return how much longer than usual the two blocks of pair `number` are, 0.61 to 1.65 times."""
    return math.exp(random.Random(f"length {seed} {number}").uniform(-_VARIES, _VARIES))
