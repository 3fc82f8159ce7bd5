"""Parts that messages share: shares with the numbers behind them, and places in the code."""

from pathlib import PurePath

from flatout.rules.facts.user_lines import Hotspot
from flatout.schema.finding import Breakdown
from flatout.schema.run import Frame
from flatout.units import format_ms, format_seconds, format_share

__all__ = ["at", "goes_to", "of_loop", "of_step", "within"]


def of_step(breakdown: Breakdown, ms: float) -> str:
    """Return `62% of each step (61.8 ms of 99.7 ms, n=180)`."""
    whole = breakdown.mean_ms
    share = format_share(min(1.0, ms / whole)) if whole > 0 else "0%"
    return f"{share} of each step ({format_ms(ms)} of {format_ms(whole)}, n={breakdown.measured})"


def of_loop(breakdown: Breakdown, spent_s: float, n: int) -> str:
    """Return `31% of the recorded loop (12.1 s of 39.0 s, n=3)`, `n` being how often it happened."""
    share = format_share(min(1.0, breakdown.loop_share(spent_s)))
    return f"{share} of the recorded loop ({format_seconds(spent_s)} of {format_seconds(breakdown.loop_s)}, n={n})"


def at(place: Frame | None) -> str:
    """Return "`Resize.__call__` (train.py:34)", or "" without a place."""
    if place is None:
        return ""
    where = f"{PurePath(place.file).name}:{place.line}"
    return where if place.function.startswith("<") else f"`{place.function}` ({where})"


def within(spot: Hotspot) -> str:
    """Return the place of a hotspot; of a function whose time is spread over its lines, the function and its caller."""
    return f"`{spot.inside.function}`, called from {at(spot.place)}" if spot.inner else at(spot.place)


def goes_to(spot: Hotspot) -> str:
    """Return the place of a hotspot, and which library function it mostly runs."""
    return f"{within(spot)}, mostly inside {spot.running}" if spot.running else within(spot)
