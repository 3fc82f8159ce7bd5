"""The time account as lines: the phases of a step as bars, what lies outside the steps, what was left out."""

from rich.text import Text

from flatout.analysis.epochs import project_epoch
from flatout.report.layout import Look
from flatout.schema.finding import Breakdown, PhaseShare
from flatout.schema.phase import Phase
from flatout.schema.report import Report
from flatout.schema.run import RankSummary
from flatout.units import format_ms, format_seconds, format_share

__all__ = [
    "account_lines",
    "epoch_lines",
    "format_rate",
    "outside_lines",
    "rank_lines",
    "shown_phases",
    "spread_in_words",
    "warmup_lines",
]

WAITING = (Phase.INPUT, Phase.TRANSFER, Phase.SYNC, Phase.CHECKPOINT, Phase.HOST)
LABEL, AMOUNT, SHARE = 10, 9, 5
INDENT = 2
SHOWN_SHARE = 0.0005
"""A phase with a smaller share would be shown as 0.0%."""


def account_lines(breakdown: Breakdown, look: Look) -> list[Text]:
    """Return the step's own line and one bar for each phase, the largest first; nothing where no step was seen."""
    if breakdown.measured == 0:
        return []
    means = f", as means of {breakdown.steps_each}" if breakdown.steps_each > 1 else ""
    steps = f"Each step takes {format_ms(breakdown.mean_ms)}"
    detail = f" (median {format_ms(breakdown.median_ms)}, {spread_in_words(breakdown)}, n={breakdown.measured}{means})"
    rate = f", {format_rate(breakdown.samples_per_s)}" if breakdown.samples_per_s else ""
    return [*look.paragraph(steps + detail + rate), *(_bar(part, look) for part in shown_phases(breakdown))]


def spread_in_words(breakdown: Breakdown) -> str:
    """Return between which times nine of ten steps lie: a spread that a few slow steps and two kinds of steps show."""
    return f"90% between {format_ms(breakdown.p5_ms)} and {format_ms(breakdown.p95_ms)}"


def shown_phases(breakdown: Breakdown) -> list[PhaseShare]:
    """Return the phases of the step that are worth a line, the largest first."""
    return sorted((part for part in breakdown.phases if part.share >= SHOWN_SHARE), key=lambda part: -part.share)


def _bar(part: PhaseShare, look: Look) -> Text:
    row = f"{part.phase.value:<{LABEL}} {format_ms(part.ms):>{AMOUNT}} {format_share(part.share):>{SHARE}}  "
    width = look.width - INDENT - len(row)
    color = "yellow" if part.phase in WAITING else "green"
    return Text.assemble(" " * INDENT, row, (look.bar(part.share, width), color))


def format_rate(per_second: float) -> str:
    """Return samples a second with at least three digits that mean something."""
    return f"{per_second:,.0f} samples/s" if per_second >= 100 else f"{per_second:.3g} samples/s"


def outside_lines(breakdown: Breakdown, look: Look) -> list[Text]:
    """Return what lies outside the steps, and the warm-up, in a line each."""
    lines = []
    shown = sorted((part for part in breakdown.outside if part.share >= SHOWN_SHARE), key=lambda part: -part.s)
    if shown:
        parts = ", ".join(
            f"{part.phase.value.replace('_', ' ')} {format_seconds(part.s)} ({format_share(part.share)})"
            for part in shown
        )
        text = f"Outside the steps: {parts} of {format_seconds(breakdown.wall_s)} recorded."
        lines += look.paragraph(text, hanging=INDENT)
    return [*lines, *warmup_lines(breakdown, look)]


def warmup_lines(breakdown: Breakdown, look: Look) -> list[Text]:
    """Return how much was left out at the start; nothing where nothing was."""
    if not breakdown.warmup:
        return []
    left_out = breakdown.warmup * breakdown.steps_each
    steps = "first step" if left_out == 1 else f"first {left_out} steps"
    return look.paragraph(f"Warm-up: {steps}, {format_seconds(breakdown.warmup_s)}, left out.", hanging=INDENT)


def epoch_lines(report: Report, price_h: float, look: Look) -> list[Text]:
    """Return what an epoch takes, and at `price_h` an hour costs, and how much of it waits; nothing without a price."""
    if price_h <= 0:
        return []
    epoch = project_epoch(report.run, report.breakdown)
    if epoch is None:
        return look.paragraph(
            "The cost of an epoch is not known: neither a loader nor the end of an epoch showed its length."
        )
    if epoch.ended:
        times = "once" if epoch.ended == 1 else f"{epoch.ended} times"
        rest = f"validation, checkpoints and gaps included ({format_seconds(epoch.between_s)}, seen {times})"
    else:
        rest = "without validation and checkpoints: no epoch ended while recording"
    told = (
        f"An epoch of {epoch.steps:,} steps takes {format_seconds(epoch.seconds)}, {rest}. At {price_h:g} an hour it "
        f"costs {_money(epoch.seconds, price_h)}; {_money(epoch.waiting_s, price_h)} of that is waiting for input, "
        "copies and the device."
    )
    return look.paragraph(told, hanging=INDENT)


def _money(seconds: float, price_h: float) -> str:
    """Return a price with at least two digits that mean something: `0.18`, `0.0042`, `214.00`."""
    amount = seconds / 3600 * price_h
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"


def rank_lines(ranks: tuple[RankSummary, ...], look: Look) -> list[Text]:
    """Return who is slowest, where there is more than one rank."""
    if len(ranks) < 2:
        return []
    if len({rank.rank for rank in ranks}) < len(ranks):  # processes that the script started without a process group
        medians = sorted(rank.median_ms for rank in ranks)
        counts = sorted({rank.num_steps for rank in ranks})
        steps = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        text = (
            f"{len(ranks)} training processes, {steps} steps each, medians {format_ms(medians[0])} to "
            f"{format_ms(medians[-1])} a step."
        )
        return look.paragraph(text, hanging=INDENT)
    slowest = max(ranks, key=lambda rank: rank.median_ms)
    fastest = min(ranks, key=lambda rank: rank.median_ms)
    text = (
        f"Ranks: {len(ranks)}; rank {slowest.rank} is the slowest ({format_ms(slowest.median_ms)} a step), "
        f"rank {fastest.rank} the fastest ({format_ms(fastest.median_ms)})."
    )
    return look.paragraph(text, hanging=INDENT)
