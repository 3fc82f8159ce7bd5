"""What a recipe is expected to give the whole training that was asked for, in words and in figures."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flatout.report.declined import format_factor
from flatout.schema.recipe import Recipe
from flatout.schema.whole_training import WholeTraining
from flatout.units import format_seconds

__all__ = [
    "LENGTHS",
    "at_least",
    "expected_row",
    "gain_in_words",
    "is_wide",
    "outcome_in_words",
    "parts_in_words",
    "steady_from_the_start",
    "whole_of",
]

LENGTHS = (1, 10, 100)
"""Epochs of the table that stands where a script does not tell how many it trains."""

WIDE = 2.0
"""An interval whose ends are further apart is no figure: its lower end is what the headline says.

On an H200 18x to 132x was confirmed as 49x (n=12 pairs): a step of the untouched script took 249 ms on average, where
it had taken 54 when it was looked at first (`benchmarks/history/ladder.jsonl`).
"""


_WORTH_NAMING_S = 0.005
_SHARED = 0.25  # of the cores: where others use more, what a training took tells little of its recipe
_LONG_AFTER = 0.05  # of a training, after its last step


def whole_of(recipe: Recipe) -> WholeTraining | None:
    """Return what the recipe gives a whole training, by the lower end of what was confirmed where that is no figure."""
    whole, proof = recipe.whole, recipe.proof
    if whole is None or not is_wide(proof.low, proof.speedup, proof.high):
        return whole
    slower = proof.speedup / proof.low
    tuned = whole.tuned
    first_s = min(max(tuned.first_epoch_s, whole.plain.first_epoch_s), tuned.first_epoch_s * slower)
    return replace(whole, tuned=replace(tuned, first_epoch_s=first_s, later_epoch_s=tuned.later_epoch_s * slower))


def is_wide(low: float, speedup: float, high: float) -> bool:
    """Return whether an interval is so wide that its middle is no figure."""
    return 1 < low < speedup and high > WIDE * low


def steady_from_the_start(recipe: Recipe) -> bool:
    """Return whether the steps of the first epoch gain as much as those of later ones."""
    whole = recipe.whole
    return whole is None or whole.tuned.first_epoch_s == whole.tuned.later_epoch_s


def at_least(low: float) -> str:
    """Return the lower end of an interval that is wide, rounded down."""
    digits = 0 if low >= 10 else 1 if low >= 2 else 2
    return f"at least {math.floor(low * 10**digits) / 10**digits:.{digits}f}x"


def gain_in_words(recipe: Recipe) -> str:
    """Return how much faster the training is: the whole one, or one of 1, 10, 100 epochs; "" where nothing is known."""
    whole, proof = whole_of(recipe), recipe.proof
    if whole is None:
        return ""
    word = "at least " if is_wide(proof.low, proof.speedup, proof.high) else ""
    if whole.epochs:
        length = "one epoch" if whole.epochs == 1 else f"{whole.epochs:,} epochs"
        before, after = whole.plain.whole_s(whole.epochs), whole.tuned.whole_s(whole.epochs)
        took = f"{format_seconds(after)} in place of {format_seconds(before)}"
        return (
            f"{word}{format_factor(whole.speedup(whole.epochs))} as fast over the whole training of {length} ({took})"
        )
    first, *others = (f"{format_factor(whole.speedup(number))} {{}} {number}" for number in LENGTHS)
    later = ", ".join(each.format("of") for each in others)
    return f"{word}{first.format('as fast in a training of')} epoch, {later}"


def parts_in_words(recipe: Recipe) -> list[str]:
    """Return what the whole is put together from, a sentence each."""
    whole = whole_of(recipe)
    if whole is None:
        return []
    plain, tuned = whole.plain, whole.tuned
    first = f"the first epoch of {whole.steps:,} steps {_before_and_after(plain.first_epoch_s, tuned.first_epoch_s)}"
    if not whole.first_known:
        first += " (not timed: taken to be no faster)"
    later = f"each later one {_before_and_after(plain.later_epoch_s, tuned.later_epoch_s)}"
    parts = [f"start-up {_before_and_after(plain.startup_s, tuned.startup_s)}", first]
    parts += [] if whole.epochs == 1 else [later]
    if plain.between_s >= _WORTH_NAMING_S:
        between = _before_and_after(plain.between_s, tuned.between_s)
        parts.append(f"validation, checkpoints and gaps after each {between}")
    return [f"Expected, as it is and under the recipe: {'; '.join(parts)}."]


def outcome_in_words(
    recipe: Recipe, took_s: float, num_steps: int, *, stepped_s: float = 0.0, foreign_share: float = 0.0
) -> str:
    """Return how long a training took beside what the untouched script would have taken; "" where that is not known.

    The latter is its pace when the recipe was made: its start, `num_steps` steps, what lies between so many epochs. It
    is compared with what the training took to its last step, `stepped_s`: what comes after was not recorded. Where
    others have used much of the machine, `foreign_share` of all cores, the two are not compared.
    """
    whole = recipe.whole
    took = f"trained {num_steps:,} steps in {format_seconds(took_s)}"
    if whole is None or not whole.steps or not num_steps or took_s <= 0:
        return took if num_steps else ""
    plain = whole.plain
    per_step_s = (plain.later_epoch_s + plain.between_s) / whole.steps
    plain_s = plain.startup_s + num_steps * per_step_s
    paced = f"{took}; at the pace recorded for the recipe, the untouched script takes about {format_seconds(plain_s)}"
    if foreign_share >= _SHARED:
        return f"{paced} on a machine of its own: here other programs used {foreign_share:.0%} of the cores meanwhile"
    stepped_s = stepped_s or took_s
    after = f" for as many (the last of them ended after {format_seconds(stepped_s)})"
    told = after if took_s - stepped_s > _LONG_AFTER * took_s else ""
    return f"{paced}{told}: {format_factor(plain_s / stepped_s)} as fast"


def _before_and_after(before_s: float, after_s: float) -> str:
    before, after = format_seconds(before_s), format_seconds(after_s)
    return before if before == after else f"{before}, then {after}"


def expected_row(recipe: Recipe) -> Mapping[str, Any]:
    """Return the figures of the JSON: of the whole training asked for, and of one of 1, 10, 100 epochs."""
    whole, step = recipe.whole, recipe.proof.speedup
    if whole is None:
        return {"speedup": step, "plain_s": None, "tuned_s": None, "epochs": [], "step_speedup": step}
    epochs = whole.epochs
    return {
        "speedup": whole.speedup(epochs or LENGTHS[1]),
        "plain_s": whole.plain.whole_s(epochs) if epochs else None,
        "tuned_s": whole.tuned.whole_s(epochs) if epochs else None,
        "epochs": [{"epochs": number, "speedup": whole.speedup(number)} for number in LENGTHS],
        "step_speedup": step,
    }
