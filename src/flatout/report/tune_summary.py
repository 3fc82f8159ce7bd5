"""The staircase of a tune: each fix that was kept, what it gave, how equal results stay, how far all of it leads."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from flatout.report.declined import check_line, declined_lines, format_factor, format_gain, format_interval
from flatout.report.expected import at_least, gain_in_words, is_wide, parts_in_words, steady_from_the_start
from flatout.report.layout import Look
from flatout.report.untried import untried_lines
from flatout.report.visible import cells
from flatout.rules.facts.machine_facts import busy_in_words
from flatout.schema.recipe import Kept
from flatout.schema.report import Report
from flatout.schema.trial import BUDGET_ENDED, Comparison, Equivalence, Trial, Verdict
from flatout.units import format_ms, format_seconds

__all__ = [
    "HandoverStair",
    "confirmation_lines",
    "handover_lines",
    "headline",
    "is_tuned",
    "mean_times",
    "remarks",
    "staircase",
]

IN_WORDS = {
    Equivalence.BITWISE: "identical results",
    Equivalence.ROUNDING: "the same maths, other rounding",
    Equivalence.PRECISION: "reduced precision",
    Equivalence.STATISTICAL: "other random numbers",
    Equivalence.SEMANTIC: "another training",
}
SHORT = {
    Equivalence.BITWISE: "identical",
    Equivalence.ROUNDING: "other rounding",
    Equivalence.PRECISION: "less precision",
    Equivalence.STATISTICAL: "other random",
    Equivalence.SEMANTIC: "other training",
}
INDENT = 2
GAIN, INTERVAL, CLASS, TOTAL = 5, 12, 14, 6
COLUMNS = GAIN + INTERVAL + CLASS + TOTAL + 3 * 2
WORTH_NAMING_S = 1.0
"""A warm-up shorter than this pays for itself before anybody has looked."""
LONGEST_S = 1e7
"""No step and no warm-up takes longer."""


@dataclass(frozen=True, slots=True)
class HandoverStair:
    """What a tune leaves in the user's hands: the recipe's file, and the command that trains under it."""

    file: str = ""  # empty: none was written
    command: tuple[str, ...] = ()


def is_tuned(report: Report) -> bool:
    """Return whether cures were tried."""
    return bool(report.trials) or report.recipe is not None


def headline(report: Report) -> str:
    """Return what came of the tune, in one sentence."""
    num_tried = len(report.trials)
    tried = f"{num_tried} candidate{'s' if num_tried != 1 else ''} tried"
    kept = _kept(report)
    fixes = f"{len(kept)} fix{'es' if len(kept) != 1 else ''} kept"
    if not num_tried:
        if any(each.reason == BUDGET_ENDED for each in report.untried):
            none = "Nothing was tried: the budget ended before the first candidate was decided. More time: --budget."
            return none + _beside_others(report)
        return "Nothing was tried: no fix applies here, or the budget left no time for one." + _beside_others(report)
    if not kept:
        none = f"none of the {tried} was" if num_tried > 1 else "the one candidate tried was not"
        return f"Nothing is kept: {none} proven faster with results that stay equal.{_beside_others(report)}"
    if report.recipe is None:
        return f"Not finished: {fixes} so far, {tried}; the whole is not confirmed, and there is no recipe yet."
    found = report.confirmation or report.recipe.proof
    step, named = f"{_figure(found.speedup, found.low, found.high)} as fast", IN_WORDS[report.recipe.equivalence]
    exact = [each for each in _of_the_same_training(kept) if each.equivalence.rank <= Equivalence.ROUNDING.rank]
    mixed = bool(exact) and len(exact) < len(kept)
    training = gain_in_words(report.recipe)
    whole = step if training and not mixed else f"{step} with {named}"
    if mixed:
        strict = max((each.equivalence for each in exact), key=lambda each: each.rank)
        product = math.prod(each.speedup for each in exact)
        whole = f"{format_factor(product)} as fast with {IN_WORDS[strict]}; {whole}"
    if training:
        which = "A step" if steady_from_the_start(report.recipe) else "A step of a later epoch"
        which = "An epoch" if report.confirmation is not None and report.confirmation.of_epochs else which
        whole = f"{training} with {named}. {which}: {whole}"
    return f"{whole[0].upper()}{whole[1:]}. {fixes}, {tried}."


def _beside_others(report: Report) -> str:
    """Return that other programs took the time or blurred the trials, and how much; "" where they used little."""
    busy = busy_in_words(report.run)
    return f" The machine was busy: {busy}. On an idle one the same budget does more." if busy else ""


def _figure(speedup: float, low: float, high: float) -> str:
    return at_least(low) if is_wide(low, speedup, high) else format_factor(speedup)


def staircase(report: Report, look: Look, *, verbose: bool) -> list[list[Text]]:
    """Return the sections of the staircase: what was kept, its totals, the proof, what was not kept or not tried."""
    kept = _kept(report)
    selections = [each.selection for each in kept]
    by_label = {trial.candidate.selection.label: trial for trial in report.trials}
    trials = [by_label[each.label] for each in selections if each.label in by_label]
    declined = [trial for trial in report.trials if trial.candidate.selection not in selections]
    return [
        _stairs(kept, trials, look, verbose=verbose),
        _totals(kept, look),
        [*confirmation_lines(report, look), *_break_even(trials, look), *_caveats(trials, look)],
        declined_lines(declined, look, report.folder, verbose=verbose),
        untried_lines(report, look),
    ]


def remarks(report: Report, look: Look) -> list[Text]:
    """Return what must be known to read the trials right: when a warm-up has paid, what `identical` means here."""
    selections = [each.selection for each in _kept(report)]
    trials = [trial for trial in report.trials if trial.candidate.selection in selections]
    return [*_break_even(trials, look), *_caveats(trials, look)]


def handover_lines(handover: HandoverStair | None, look: Look) -> list[Text]:
    """Return where the recipe lies and how to train under it, uncut: people copy it."""
    if handover is None or not handover.file:
        return []
    lines = [Text.assemble("Recipe: ", look.safe(handover.file))]
    if handover.command:
        lines.append(Text.assemble("Train under it: ", (look.safe(shlex.join(handover.command)), "bold")))
    return lines


def _kept(report: Report) -> tuple[Kept, ...]:
    """Return the fixes of the recipe, or, of a tune that was interrupted, those that were kept so far."""
    if report.recipe is not None:
        return report.recipe.fixes + ((report.recipe.ranks.as_kept,) if report.recipe.ranks is not None else ())
    passed = [(trial, trial.comparison) for trial in report.trials if trial.verdict is Verdict.KEPT]
    return tuple(
        Kept(
            selection=trial.candidate.selection,
            equivalence=trial.candidate.equivalence,
            speedup=found.speedup if found else 1.0,
            low=found.low if found else 1.0,
            high=found.high if found else 1.0,
        )
        for trial, found in passed
    )


def _of_the_same_training(kept: Sequence[Kept]) -> Sequence[Kept]:
    """Return what was kept before anything that makes another training of it: the others' gains are gains on top."""
    semantic = (place for place, each in enumerate(kept) if each.equivalence is Equivalence.SEMANTIC)
    return kept[: next(semantic, len(kept))]


def _stairs(kept: Sequence[Kept], trials: Sequence[Trial], look: Look, *, verbose: bool) -> list[Text]:
    """Return one stair for each fix: its name, its own gain, how equal results stay, the gain of all so far."""
    if not kept:
        return []
    heading = _columns("gain", "95% interval", "results", "so far")
    lines = _row("Kept, one on top of the other", heading, look, style="bold", indent=0)
    total = 1.0
    for each in kept:
        total *= each.speedup
        gain, interval = format_factor(each.speedup), format_interval(each.low, each.high)
        columns = _columns(gain, interval, SHORT[each.equivalence], format_factor(total))
        lines += _row(each.selection.label, columns, look, style="green", indent=INDENT)
        if verbose:
            lines += _evidence([trial for trial in trials if trial.candidate.selection == each.selection], look)
    return lines


def _columns(gain: str, interval: str, results: str, total: str) -> str:
    return f"{gain:>{GAIN}}  {interval:<{INTERVAL}}  {results:<{CLASS}}  {total:>{TOTAL}}"


def _row(name: str, columns: str, look: Look, *, style: str, indent: int) -> list[Text]:
    """Return a name on the left and columns on the right, below each other where they do not fit."""
    name = look.safe(name)
    gap = look.width - indent - cells(name) - COLUMNS
    if gap >= 2:
        return [Text.assemble(" " * indent, (name, style), " " * gap, columns)]
    lines = look.paragraph(name, indent=indent, hanging=2, style=style)
    below = look.width - COLUMNS
    return [*lines, Text(" " * below + columns)] if below >= 0 else [*lines, *look.paragraph(columns, indent=4)]


def _evidence(trials: Sequence[Trial], look: Look) -> list[Text]:
    """Return how often a kept fix acted, and the checks that its results passed."""
    lines = []
    for trial in trials:
        lines += [
            look.line(f"{place}: {number:,} times", indent=6, style="dim") for place, number in trial.hits.items()
        ]
        checks = trial.equality.checks if trial.equality else ()
        lines += [look.line(check_line(each), indent=6, style="dim") for each in checks]
    return lines


def _totals(kept: Sequence[Kept], look: Look) -> list[Text]:
    """Return how long a step still takes with each class of fixes, down to the weakest: the staircase as bars."""
    own, last = _of_the_same_training(kept), [Equivalence.SEMANTIC]
    classes = [each for each in Equivalence if any(one.equivalence is each for one in own)]
    classes += last if len(own) < len(kept) else []
    if not classes:
        return []
    name = max(len(IN_WORDS[each]) for each in Equivalence) + len("with ")
    rows = [("as it is", 1.0)]
    for each in classes:
        of_it = kept if each is Equivalence.SEMANTIC else _of_the_same_training(kept)
        product = math.prod(one.speedup for one in of_it if one.equivalence.rank <= each.rank)
        rows.append((f"with {IN_WORDS[each]}", product))
    width = look.width - INDENT - name - 2 - TOTAL - 2
    lines = [look.line("Time of a step", style="bold")]
    for label, speedup in rows:
        style = "yellow" if label == "as it is" else "green"
        share = 1 / speedup if speedup > 0 else 1.0
        if width < 1:
            lines += look.paragraph(f"{label}: {format_factor(speedup)}", indent=INDENT, hanging=2)
            continue
        row = f"{label:<{name}}  {format_factor(speedup):>{TOTAL}}  "
        lines.append(Text.assemble(" " * INDENT, row, (look.bar(share, width), style)))
    return lines


def confirmation_lines(report: Report, look: Look) -> list[Text]:
    """Return what the whole recipe gave against the untouched script."""
    found = report.confirmation
    if found is None or not found.pairs:
        return []
    word = "Confirmed" if report.recipe is not None else "Not confirmed"
    text = f"{word}: the whole recipe against the untouched script, in fresh processes: {format_gain(found)}"
    times = mean_times(found)
    what = "a step, with its share of what lies between epochs," if found.of_epochs else "a step"
    text += f"; {what} took {format_ms(times[0])}, now {format_ms(times[1])}" if times else ""
    text += " for as many samples." if any(each.equivalence is Equivalence.SEMANTIC for each in _kept(report)) else "."
    lines = look.paragraph(text, hanging=INDENT)
    for sentence in parts_in_words(report.recipe) if report.recipe is not None else ():
        lines += look.paragraph(sentence, hanging=INDENT)
    return lines


def _break_even(trials: Sequence[Trial], look: Look) -> list[Text]:
    """Return after how long each fix with a warm-up of its own has paid for it."""
    lines = []
    for trial in trials:
        times = mean_times(trial.comparison) if trial.comparison else None
        if times is None or not WORTH_NAMING_S <= trial.warmup_s < LONGEST_S or not times[0] > times[1]:
            continue
        steps = math.ceil(trial.warmup_s * 1000 / (times[0] - times[1]))
        text = (
            f"{trial.candidate.selection.label} pays for its {format_seconds(trial.warmup_s)} of compilation and "
            f"warm-up after {steps:,} steps ({format_seconds(steps * times[0] / 1000)} of this training)."
        )
        lines += look.paragraph(text, hanging=INDENT)
    return lines


def mean_times(found: Comparison) -> tuple[float, float] | None:
    """Return the mean milliseconds of a step without and with it, None where they are no times that a clock gives."""
    if not found.pairs:
        return None
    before = sum(pair.baseline_ms for pair in found.pairs) / len(found.pairs)
    after = sum(pair.candidate_ms for pair in found.pairs) / len(found.pairs)
    return (before, after) if all(1e-6 < time < LONGEST_S * 1000 for time in (before, after)) else None


def _caveats(trials: Sequence[Trial], look: Look) -> list[Text]:
    """Return what the reader must know to read the classes right."""
    lines = []
    if not all(trial.equality is None or trial.equality.deterministic for trial in trials):
        text = (
            "The untouched script does not give the same bits twice: results were compared with the range that two "
            "runs of it span, so `identical` means within that range."
        )
        lines += look.paragraph(text, hanging=INDENT, style="magenta")
    for trial in trials:
        if trial.candidate.equivalence is Equivalence.SEMANTIC:
            fix = trial.candidate.selection.fix
            text = (
                f"{fix} changes the training itself: results were not compared, and only a whole training tells "
                f"whether the model is as good. What becomes of the learning rate: flatout explain {fix}"
            )
            lines += look.paragraph(text, hanging=INDENT, style="magenta")
    return lines
