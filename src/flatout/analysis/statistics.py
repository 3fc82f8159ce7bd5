"""Statistics for step times: robust against stalls, free of assumptions about their shape, fast for 100,000 steps.

Step times have a heavy right tail (garbage collection, checkpoints, another process on the machine), so places and
widths are medians and median deviations; means are kept for what must add up (the time account).
"""

import math
from collections.abc import Sequence
from itertools import pairwise

__all__ = ["NORMAL_MAD", "block_mean", "mad", "median", "quantile", "robust_cv", "steady_start", "theil_sen_slope"]

NORMAL_MAD = 1.4826
"""MAD of a normal distribution times this is its standard deviation."""

MAX_PAIRED = 200
"""Values up to which all pairs are compared for a slope; longer series are first cut into that many blocks."""

CLIP_SIGMAS = 5.0
CLIP_SHARE = 0.05
PREFIX_SHARE = 0.25
SHIFT_SIGMAS = 4.0


def median(values: Sequence[float]) -> float:
    """Return the middle of `values`, the mean of the two middle ones when their number is even.

    Raises:
        ValueError: `values` is empty.
    """
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of `values` lie, with linear interpolation.

    Definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician 50 (1996),
    the default of R and numpy.

    Raises:
        ValueError: `values` is empty, or `share` is not between 0 and 1.
    """
    if not values:
        raise ValueError("no values to take a quantile of")
    if not 0 <= share <= 1:
        raise ValueError(f"a quantile is between 0 and 1, not {share}")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (position - below))


def block_mean(values: Sequence[float]) -> float:
    """Return the mean of a block of step times with stalls drawn in to the upper fence (third quartile + 3 IQR).

    A mean and not a median: with two loader workers batches come in pairs, a fast step after a slow one, and what
    counts is their sum. Tukey's outer fence ("Exploratory Data Analysis", 1977) leaves such a pattern alone.

    Raises:
        ValueError: `values` is empty.
    """
    low, high = quantile(values, 0.25), quantile(values, 0.75)
    fence = high + 3 * (high - low)
    return sum(min(value, fence) for value in values) / len(values)


def mad(values: Sequence[float]) -> float:
    """Return the median absolute deviation from the median, unscaled (times 1.4826 it estimates a sigma).

    Rousseeuw and Croux, "Alternatives to the Median Absolute Deviation", JASA 88 (1993).
    """
    middle = median(values)
    return median([abs(value - middle) for value in values])


def robust_cv(values: Sequence[float]) -> float:
    """Return the spread of `values` relative to their median, 1.4826 * MAD / median; 0 when the median is 0."""
    middle = median(values)
    return NORMAL_MAD * mad(values) / middle if middle > 0 else 0.0


def theil_sen_slope(values: Sequence[float]) -> float:
    """Return the median slope over all pairs, per position: a trend that up to 29% of wild values cannot bend.

    Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", JASA 63 (1968). More than 200 values are
    first reduced to 200 medians of neighbouring values, so that the number of pairs stays below 20,000.
    """
    num_blocks = min(len(values), MAX_PAIRED)
    if num_blocks < 2:
        return 0.0
    edges = [round(block * len(values) / num_blocks) for block in range(num_blocks + 1)]
    centers = [(first + last - 1) / 2 for first, last in pairwise(edges)]
    heights = [median(values[first:last]) for first, last in pairwise(edges)]
    slopes = [
        (heights[right] - heights[left]) / (centers[right] - centers[left])
        for left in range(num_blocks)
        for right in range(left + 1, num_blocks)
    ]
    return median(slopes)


def steady_start(walls: Sequence[float]) -> int:
    """Return how many values at the start are warm-up: compilation, cudnn search, allocator growth, a cold cache.

    Two tests, both against the second half, which is taken to be warm; the larger answer counts, never more than half.

    1. The run of slow values at the very start: each more than 5 sigma and 25% above the second half's median.
    2. The cut that minimizes the marginal standard error of what remains (MSER: White, "An Effective Truncation
       Heuristic for Bias Reduction in Simulation Output", Simulation 69 (1997)), on values clipped at 5 sigma, so that
       a single stall in mid-run attracts no cut. It is taken only where the cut part differs from the rest by 4
       standard errors, and not at the limit of its range: there the series has a trend and no steady part.
    """
    limit = len(walls) // 2
    if limit == 0:
        return 0
    reference = walls[-limit:]
    middle = median(reference)
    sigmas = CLIP_SIGMAS * NORMAL_MAD * mad(reference)
    return max(_slow_prefix(walls[:limit], middle + max(sigmas, PREFIX_SHARE * middle)), _cut(walls, middle, sigmas))


def _slow_prefix(walls: Sequence[float], fence: float) -> int:
    """Return how many values in a row from the first on lie above `fence`."""
    return next((position for position, wall in enumerate(walls) if wall <= fence), len(walls))


def _cut(walls: Sequence[float], middle: float, sigmas: float) -> int:
    """Return the MSER cut of `walls` where it is trustworthy, else 0."""
    width = max(sigmas, CLIP_SHARE * middle)
    if width <= 0:
        return 0
    clipped = [max(-1.0, min(1.0, (wall - middle) / width)) for wall in walls]
    limit = len(walls) // 2
    cut = _least_standard_error(clipped, limit)
    return cut if 0 < cut <= 0.9 * limit and _differs(clipped, cut) else 0


def _least_standard_error(values: Sequence[float], limit: int) -> int:
    """Return the cut of at most `limit` values after which the squared standard error of the mean is least."""
    total = squares = 0.0
    best, best_score = 0, math.inf
    for cut in range(len(values) - 1, -1, -1):
        total += values[cut]
        squares += values[cut] * values[cut]
        left = len(values) - cut
        if cut <= limit:
            score = max(0.0, squares - total * total / left) / (left * left)
            if score <= best_score:  # of equal cuts the smallest
                best, best_score = cut, score
    return best


def _differs(values: Sequence[float], cut: int) -> bool:
    """Return whether the mean before `cut` differs from the mean after it by more than chance allows."""
    before, after = values[:cut], values[cut:]
    mean = sum(after) / len(after)
    variance = sum((value - mean) ** 2 for value in after) / len(after)
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    return abs(sum(before) / len(before) - mean) > SHIFT_SIGMAS * error
