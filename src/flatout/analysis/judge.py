"""Whether a candidate is faster: looks at paired blocks that are fixed in advance and paid for.

The value of a pair is the log of its ratio, log(baseline / candidate): 0 when nothing changed, the same size for twice
as fast and half as fast. Looking at the data after every pair and stopping when they please accepts a change that
brings nothing in 8 to 11 % of the cases (simulated, nominal 2.5 %); so the looks are few, fixed in advance, and share
the error probability among them.

Neighbouring blocks see the same machine, but now and then one is hit by something else. From 8 pairs on an eighth of
them is therefore cut at either end, and what is left is judged by Yuen's t test for trimmed means. So that a
candidate's own rare stalls are not cut away with the machine's, the plain mean has to agree with the sign.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from flatout.schema.trial import Comparison, Pair

__all__ = ["CONFIRM_LOOKS", "FLOOR", "allocate", "compare", "confirm", "last_look", "t_quantile", "t_tail"]

FLOOR = 1.02
"""Gains below this are not worth a line in a recipe: they are within what another machine state makes of it."""

CONFIRM_LOOKS = (12, 24, 48, 96)
"""Pairs after which a whole recipe is looked at: 12 settle a gain of a fifth, more are for some percent.

In power.py's real tunes of 2026-11-22 a gain of 5 % was found by trials of up to 128 pairs and lost by a confirmation
of 12 (0 of 3 kept).
"""

_CONFIRM_ALPHAS = (0.005, 0.002, 0.0015, 0.0015)
"""Error probability spent at each of them: 1 % in all, on top of what the trials spent."""

_LEAST_SIGMA = 1e-3
"""Pairs are never taken to scatter by less than 0.1 %: some equal ratios in a row are no proof of precision."""

_GIVEN_UP = 0.85
"""Certainty that a gain of the floor is missed with which a candidate is given up after the first look. It costs time
otherwise spent on candidates that bring nothing, and no false win; a gain of 5 % is given up so in a few per cent of
the trials where its standard error is 2 %."""

_LARGEST = 10.0  # a ceiling above it weighs as much as this
_TRIM = 8  # one pair in so many is cut at either end
_TINY = 1e-300


def allocate(ceilings: Sequence[float], total: float = 0.02) -> tuple[float, ...]:
    """Return the error probability that each candidate may spend so that all together spend `total`.

    Bonferroni's rule with weights (Genovese, Roeder and Wasserman, "False discovery control with p-value weighting",
    Biometrika 93, 2006): it holds whatever the candidates have in common, and they share a baseline, as long as no
    timing has a say in the weights. Half is shared equally, half by the logarithm of the most that each could give
    (`ceilings`, factors): on a machine that others use, pairs scatter, and what is likely large must not be lost.
    """
    hopes = [max(0.0, math.log(min(ceiling, _LARGEST))) if ceiling > 0 else 0.0 for ceiling in ceilings]
    sum_of_hopes, equal = math.fsum(hopes), total / max(1, len(hopes))
    if not sum_of_hopes:
        return (equal,) * len(hopes)
    return tuple(equal / 2 + total / 2 * hope / sum_of_hopes for hope in hopes)


def compare(pairs: Sequence[Pair], *, alpha: float, looks: tuple[int, ...], floor: float = FLOOR) -> Comparison:
    """Return what `pairs` say of a candidate so far.

    The decision is "faster", "slower", "not faster" (a gain of `floor` is ruled out: stopping for that costs no error)
    or "undecided" after the last look, and "" as long as there is more to come. It is made only when the number of
    pairs is one of `looks`; each look spends `alpha / len(looks)`, one-sided. Pairs with a time that is not positive
    and finite count as pairs but say nothing.
    """
    values = [value for value in map(_log_ratio, pairs) if value is not None]
    center, error, freedom = _trimmed(values)
    width = t_quantile(0.975, freedom) * error if freedom else math.inf
    decision = ""
    if len(pairs) in looks:
        certainty = 0.975 if len(pairs) == min(looks) else _GIVEN_UP
        decision = _decide(values, center, error, freedom, alpha / len(looks), math.log(floor), certainty)
    if decision == "" and looks and len(pairs) >= max(looks):
        decision = "undecided"
    return Comparison(
        pairs=tuple(pairs),
        speedup=_exp(center),
        low=_exp(center - width),
        high=_exp(center + width),
        decision=decision,
        looks=sum(look <= len(pairs) for look in looks),
        alpha=alpha,
    )


def last_look(pairs: Sequence[Pair], *, alpha: float, looks: tuple[int, ...]) -> str:
    """Return the decision on `pairs` where no more can be had, "" for none: it may spend what later looks would have.

    When that is depends on the time there was and not on what the pairs say, so all looks spend `alpha` together.
    """
    number = len(pairs)
    if not min(looks) <= number <= max(looks):
        return compare(pairs, alpha=alpha, looks=looks).decision
    left = sum(look >= number for look in looks) / len(looks)
    return compare(pairs, alpha=alpha * left, looks=(number,)).decision


def confirm(pairs: Sequence[Pair], look: int = 0, floor: float = FLOOR) -> Comparison:
    """Return what `pairs` say of a whole recipe at a look, 0 the first.

    `CONFIRM_LOOKS` has the number of pairs it is due at. Where fewer could be had because the time was over, it is made
    of those. The decision is "undecided" where another look may still tell.
    """
    found = compare(pairs, alpha=_CONFIRM_ALPHAS[look], looks=(len(pairs),), floor=floor)
    return replace(found, looks=look + 1, alpha=math.fsum(_CONFIRM_ALPHAS[: look + 1]))


def _log_ratio(pair: Pair) -> float | None:
    """Return log(baseline / candidate), None where a time is zero, negative, infinite or no number."""
    times = (pair.baseline_ms, pair.candidate_ms)
    if not all(0 < time < math.inf for time in times):
        return None
    return math.log(pair.baseline_ms) - math.log(pair.candidate_ms)


def _trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean of `values`, its standard error, and the degrees of freedom (0: no spread is known).

    Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61 (1974); Tukey and McLaughlin,
    Sankhya A 25 (1963). The spread is that of the winsorized values: those cut are put at the place of the last kept.
    """
    number = len(values)
    if number < 2:
        return (values[0] if values else 0.0), math.inf, 0
    cut = number // _TRIM
    ordered = sorted(values)
    kept = ordered[cut : number - cut]
    center = math.fsum(kept) / len(kept)
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    middle = math.fsum(winsorized) / number
    variance = math.fsum((value - middle) ** 2 for value in winsorized) / (number - 1)
    sigma = max(math.sqrt(variance), _LEAST_SIGMA)
    return center, sigma * math.sqrt(number) / len(kept), len(kept) - 1


def _decide(
    values: Sequence[float], center: float, error: float, freedom: int, alpha: float, least: float, certainty: float
) -> str:
    """Return the decision of one look, "" when there is none."""
    if not freedom or not alpha > 0:
        return ""
    mean = math.fsum(values)
    passes = t_tail(abs(center) / error, freedom) <= alpha
    if passes and center >= least and mean > 0:
        return "faster"
    if passes and center <= -least and mean < 0:
        return "slower"
    return "not faster" if center + t_quantile(certainty, freedom) * error < least else ""


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)


# -- Student's t ----------------------------------------------------------------------------------------------------


def t_tail(value: float, freedom: int) -> float:
    """Return the probability that Student's t with `freedom` degrees of freedom exceeds `value`.

    Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.7.1 with 26.5.27.

    Raises:
        ValueError: `freedom` is less than 1.
    """
    if freedom < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, not {freedom}")
    if math.isinf(value):
        return 0.0 if value > 0 else 1.0
    half = 0.5 * _incomplete_beta(freedom / (freedom + value * value), freedom / 2, 0.5)
    return half if value >= 0 else 1.0 - half


@functools.cache
def t_quantile(share: float, freedom: int) -> float:
    """Return the value that Student's t with `freedom` degrees of freedom stays below with probability `share`.

    Raises:
        ValueError: `freedom` is less than 1, or `share` is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"a quantile lies strictly between 0 and 1, not at {share}")
    if share < 0.5:
        return -t_quantile(1 - share, freedom)
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > 1 - share:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_tail(middle, freedom) > 1 - share else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(front) * _fraction(x, a, b) / a
    return 1.0 - math.exp(front) * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8).

    Evaluated by Lentz's method: "Generating Bessel functions in Mie scattering calculations using continued
    fractions", Applied Optics 15 (1976), as modified by Thompson and Barnett.
    """
    c, d = 1.0, 1.0 / (_away(1.0 - (a + b) * x / (a + 1)))
    result = d
    for m in range(1, 400):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            result *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return result


def _away(value: float) -> float:
    """Return `value`, kept away from zero."""
    return value if abs(value) > _TINY else _TINY
