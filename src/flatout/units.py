"""Quantities as people read them: times, byte counts, shares and ratios, with their units in the text."""

import math

__all__ = ["format_bytes", "format_ms", "format_ratio", "format_seconds", "format_share"]


def format_ms(value_ms: float) -> str:
    """Return a duration given in milliseconds with three significant digits: `0.31 ms`, `12.4 ms`, `2.31 s`."""
    if abs(value_ms) >= 1000:
        return format_seconds(value_ms / 1000)
    if abs(value_ms) >= 100:
        return f"{value_ms:.0f} ms"
    if abs(value_ms) >= 10:
        return f"{value_ms:.1f} ms"
    if abs(value_ms) >= 0.1:
        return f"{value_ms:.2f} ms"
    return f"{value_ms * 1000:.1f} us"


def format_seconds(value_s: float) -> str:
    """Return a duration given in seconds: `0.4 s`, `41.2 s`, `3 min 05 s`, `2 h 10 min`; `inf s` without an end."""
    if value_s < 100 or not math.isfinite(value_s):
        return f"{value_s:.2f} s" if value_s < 10 else f"{value_s:.1f} s"
    minutes, seconds = divmod(round(value_s), 60)
    if minutes < 100:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_bytes(num_bytes: float) -> str:
    """Return a byte count in binary units: `512 B`, `3.1 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(num_bytes) < 1024:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"


def format_share(share: float) -> str:
    """Return a share of 1 as a percentage: `62%`, `0.4%`."""
    percent = share * 100
    return f"{percent:.0f}%" if percent >= 9.95 or percent == 0 else f"{percent:.1f}%"


def format_ratio(ratio: float) -> str:
    """Return a speed-up as people say it: `2.6x`, `1.04x`, `38x`."""
    if ratio >= 9.95:
        return f"{ratio:.0f}x"
    return f"{ratio:.1f}x" if ratio >= 1.95 else f"{ratio:.2f}x"
