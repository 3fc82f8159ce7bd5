"""The headroom as a small staircase: what a step takes with its input replayed at one place after the other.

Every place was measured in turns with the script as it is, one place after the other. Shown are therefore ratios to
the step as it is, in its milliseconds: so drift of the machine makes no stair.
"""

from dataclasses import dataclass

from rich.text import Text

from flatout.analysis.headroom_stages import Stair, left_between, stairs
from flatout.report.account import format_rate
from flatout.report.layout import Look
from flatout.report.visible import cells
from flatout.schema.facts import HELD_FIXED, HELD_INPUT, HELD_PINNED, HELD_RAW, HELD_SAMPLES, LOADER_ALONE
from flatout.schema.finding import Breakdown, Ceiling
from flatout.schema.run import Run
from flatout.units import format_ms, format_share

__all__ = ["HeadroomRow", "headroom_lines", "rows", "sentences", "with_workers"]

_HEADING = "Headroom: a step with replayed input, place by place (95% intervals, +-2%)"
_SHOWN = {  # recordings and JSON keep the names of `schema.facts`
    HELD_RAW: "raw samples replayed",
    HELD_FIXED: "fixed part replayed",
    HELD_SAMPLES: "samples replayed",
    HELD_INPUT: "one batch replayed",
    HELD_PINNED: "pinned batch replayed",
}
_NAME, _AMOUNT, _INTERVAL, _SHARE = 23, 9, 15, 5
_INDENT = 2
_WORTH_NAMING = 0.02
_AS_FAST = 1.05


@dataclass(frozen=True, slots=True)
class HeadroomRow:
    """One place: what a step takes there, and which stage has gone since the place before."""

    name: str
    ms: str
    interval: str
    share: str
    stage: str
    left: float  # of the step as it is


def headroom_lines(
    headroom: tuple[Ceiling, ...], breakdown: Breakdown, look: Look, *, workers: bool = False
) -> list[Text]:
    """Return the staircase and what it says; nothing where nothing was measured."""
    found = rows(headroom, breakdown, workers=workers)
    if not found:
        return []
    lines = look.paragraph(f"{_HEADING}:", hanging=_INDENT)
    for row in found:
        name = look.safe(row.name)
        space = " " * max(0, _NAME - cells(name))
        line = f"{name}{space} {row.ms:>{_AMOUNT}}  {row.interval:<{_INTERVAL}} {row.share:>{_SHARE}} {row.stage}"
        if _INDENT + cells(line.rstrip()) <= look.width:
            lines.append(Text(" " * _INDENT + line))
            continue
        detail = f" ({row.interval})" if row.interval else ""
        stage = f", {row.stage} {row.share}" if row.stage else ""
        lines += look.paragraph(f"{row.name}: {row.ms}{detail}{stage}", indent=_INDENT, hanging=_INDENT)
    for sentence in sentences(headroom, breakdown, workers=workers):
        lines += look.paragraph(sentence, hanging=_INDENT)
    return lines


def with_workers(run: Run) -> bool:
    """Return whether batches of the training are made in worker processes."""
    return any(loader.is_training and loader.num_workers for loader in run.loaders)


def rows(headroom: tuple[Ceiling, ...], breakdown: Breakdown, *, workers: bool = False) -> list[HeadroomRow]:
    """Return the step as it is and one row for each place, in the order in which a batch comes by them."""
    known = stairs(headroom, workers=workers)
    others = [each for each in headroom if each not in [stair.ceiling for stair in known]]
    whole_ms = breakdown.median_ms
    found = [_row(stair.ceiling, whole_ms, stair) for stair in known]
    found += [_row(each, whole_ms, None) for each in others if each.ceiling != LOADER_ALONE]
    return [HeadroomRow("as it is", format_ms(whole_ms), "", "", "", 1.0), *found] if found else []


def sentences(headroom: tuple[Ceiling, ...], breakdown: Breakdown, *, workers: bool = False) -> list[str]:
    """Return which stage takes the most, and how fast the loader is alone."""
    found = []
    known = stairs(headroom, workers=workers)
    stages = sorted((stair for stair in known if stair.share >= _WORTH_NAMING), key=lambda each: -each.share)
    if stages:
        first, *others = (f"{stage.stage} {_share(stage)}" for stage in stages)
        more = f"; then {', '.join(others)}" if others else ""
        found.append(f"The largest part of the step there is {first}{more}.")
    alone = next((each for each in headroom if each.ceiling == LOADER_ALONE), None)
    return [*found, _alone(alone, headroom, breakdown)] if alone is not None else found


def _row(ceiling: Ceiling, whole_ms: float, stair: Stair | None) -> HeadroomRow:
    return HeadroomRow(
        name=_SHOWN.get(ceiling.ceiling, ceiling.ceiling),
        ms=format_ms(_left_ms(ceiling, whole_ms)),
        interval=_interval(ceiling, whole_ms),
        share=format_share(stair.share) if stair else "",
        stage=stair.stage if stair else "",
        left=_left_ms(ceiling, 1.0),
    )


def _left_ms(ceiling: Ceiling, whole_ms: float) -> float:
    return whole_ms / ceiling.speedup if ceiling.speedup > 0 else whole_ms


def _interval(ceiling: Ceiling, whole_ms: float) -> str:
    """Return between what the step's time there lies."""
    if not ceiling.num_pairs or not 0 < ceiling.low <= ceiling.high:
        return ""
    low, high = left_between(ceiling)
    return f"{_figure(whole_ms * low)} to {_figure(whole_ms * high)}"


def _figure(value_ms: float) -> str:
    """Return milliseconds with three significant digits, without their unit."""
    if value_ms >= 100:
        return f"{value_ms:,.0f}"
    return f"{value_ms:.1f}" if value_ms >= 10 else f"{value_ms:.2f}"


def _share(stair: Stair) -> str:
    return f"{format_share(stair.share)} ({format_share(stair.low)} to {format_share(stair.high)})"


def _alone(alone: Ceiling, headroom: tuple[Ceiling, ...], breakdown: Breakdown) -> str:
    """Return what the loader gives without any training, and which of the two sets the pace."""
    batch_ms, samples = _left_ms(alone, breakdown.median_ms), (breakdown.samples_per_s or 0.0) * breakdown.mean_ms / 1e3
    rate = f" ({format_rate(samples / batch_ms * 1e3)})" if samples and batch_ms > 0 else ""
    told = f"The loader alone, without any training, takes {format_ms(batch_ms)} a batch{rate}"
    interval = _interval(alone, breakdown.median_ms)
    told += f", {interval} ms in n={alone.num_pairs} blocks" if interval else ""
    training = next((each for each in headroom if each.ceiling == HELD_INPUT), None)
    if training is None:
        return f"{told}."
    training_ms = _left_ms(training, breakdown.median_ms)
    slower = batch_ms > _AS_FAST * training_ms
    pace = "the loader is slower than the training" if slower else "the loader is no slower than the training"
    return f"{told}; the training without it {format_ms(training_ms)}: {pace}."
