"""What was tried and not kept, and why: a line for each."""

from collections.abc import Callable, Mapping, Sequence

from rich.text import Text

from flatout.report.layout import Look
from flatout.schema.trial import Check, Comparison, Trial, Verdict
from flatout.units import format_ratio

__all__ = ["MAX_DECLINED", "check_line", "declined_lines", "format_factor", "format_gain", "format_interval", "reason"]

MAX_DECLINED = 20
LARGEST = 1000.0
"""Beyond this factor, and below its inverse, an interval says only that there were too few pairs."""


def declined_lines(trials: Sequence[Trial], look: Look, folder: str, *, verbose: bool) -> list[Text]:
    """Return the trials that were not kept, in their order, at most 20 unless all were asked for."""
    if not trials:
        return []
    shown = trials if verbose else trials[:MAX_DECLINED]
    lines = [look.line("Tried and not kept", style="bold")]
    for trial in shown:
        lines += look.paragraph(f"{trial.candidate.selection.label}: {reason(trial)}", indent=2, hanging=2)
        if verbose and trial.equality is not None:
            lines += [look.line(check_line(each), indent=6, style="dim") for each in trial.equality.checks]
    if len(shown) < len(trials):
        more = f"+{len(trials) - len(shown)} more: flatout report {folder or 'DIR'} --verbose"
        lines += look.paragraph(more, indent=2, hanging=2)
    return lines


def reason(trial: Trial) -> str:
    """Return in words why `trial` was not kept, with the numbers that decided it."""
    return _WORDS[trial.verdict](trial)


def _measured(word: str) -> Callable[[Trial], str]:
    """Return the words for a trial that its timing decided."""

    def words(trial: Trial) -> str:
        parts = [format_gain(trial.comparison)] if trial.comparison is not None and trial.comparison.pairs else []
        return f"{word}: {'; '.join([*parts, *filter(None, [trial.reason])]) or 'it was not measured'}"

    return words


def _ended(word: str, otherwise: str) -> Callable[[Trial], str]:
    """Return the words for a trial that came to no timing."""
    return lambda trial: f"{word}: {trial.reason or otherwise}"


def _differs(trial: Trial) -> str:
    """Return what differs; the speed that was given up for it shows what the refusal cost."""
    speed = f" at {format_factor(trial.comparison.speedup)}" if trial.comparison and trial.comparison.pairs else ""
    told = trial.reason or (trial.equality.reason if trial.equality else "")
    if not told and trial.equality is not None:
        told = ", ".join(check_line(each) for each in trial.equality.checks if not each.passed)
    return f"refused{speed}, results differ: {told or 'no check names the place'}"


def _left_out(trial: Trial) -> str:
    """Return why a fix that had passed its trial is not in the recipe."""
    return f"passed its trial, but is not in the recipe: {trial.reason or 'the recipe is as fast without it'}"


_WORDS: Mapping[Verdict, Callable[[Trial], str]] = {
    Verdict.KEPT: _left_out,
    Verdict.NOT_FASTER: _measured("not faster"),
    Verdict.SLOWER: _measured("slower"),
    Verdict.RESULTS_DIFFER: _differs,
    Verdict.NOT_APPLIED: _ended("did not act", "the script never reached code that it changes"),
    Verdict.OUT_OF_MEMORY: _ended("out of memory", "the script needs more memory under it than there is"),
    Verdict.CRASHED: _ended("crashed", "the script ended with an error under it"),
    Verdict.TIMED_OUT: _ended("took too long", "it was stopped at its time limit"),
    Verdict.UNDECIDED: _measured("undecided, so not kept"),
}


def check_line(check: Check) -> str:
    """Return `gradients differ: 0.031, limit 1e-05 (conv1.weight, step 3)`."""
    word = "equal" if check.passed else "differs"
    numbers = f": {check.value:.2g}, limit {check.limit:.2g}" if check.value or check.limit else ""
    return f"{check.name} {word}{numbers}{f' ({check.detail})' if check.detail else ''}"


def format_gain(comparison: Comparison) -> str:
    """Return `1.44x (1.40 to 1.48, n=8 pairs)`, the interval being that of 95 %."""
    number = len(comparison.pairs)
    pairs = f"n={number} pair{'s' if number != 1 else ''}"
    return f"{format_factor(comparison.speedup)} ({format_interval(comparison.low, comparison.high)}, {pairs})"


def format_factor(speedup: float) -> str:
    """Return `1.44x`, and `?` for what no clock can have given."""
    return format_ratio(speedup) if 1 / LARGEST < speedup < LARGEST else "?"


def format_interval(low: float, high: float) -> str:
    """Return `1.40 to 1.48`; where an end is beyond all sense, say that the pairs were too few for an interval."""
    if not (1 / LARGEST < low <= high < LARGEST):
        return "no interval"
    return f"{_factor(low)} to {_factor(high)}"


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 9.95 else f"{value:.0f}"
