"""What the JSON report says of one ceiling, finding, trial or recipe: plain values, every number finite."""

import math
from collections.abc import Mapping
from typing import Any

from flatout.report.expected import expected_row
from flatout.schema.finding import Ceiling, Finding
from flatout.schema.plain import to_plain
from flatout.schema.recipe import Kept, Recipe
from flatout.schema.trial import Comparison, Equality, Selection, Trial
from flatout.units import format_ratio

__all__ = ["ceiling_row", "finding_row", "finite", "recipe_row", "trial_row"]

LARGEST = 1e9
"""What an infinite number is written as: JSON has no infinity."""


def ceiling_row(ceiling: Ceiling) -> dict[str, Any]:
    """Return one measured ceiling."""
    return {
        "ceiling": ceiling.ceiling,
        "median_ms": finite(ceiling.median_ms),
        "speedup": finite(ceiling.speedup),
    }


def finding_row(finding: Finding) -> dict[str, Any]:
    """Return one finding."""
    return {
        "code": finding.code,
        "name": finding.name,
        "phase": finding.phase.value,
        "share": finite(finding.share),
        "max_speedup": finite(finding.max_speedup),
        "location": to_plain(finding.location),
        "message": _message(finding),
        "evidence": [{"name": each.name, "value": finite(each.value), "unit": each.unit} for each in finding.evidence],
        "fixes": list(finding.fixes),
        **({"optional": True} if finding.optional else {}),  # no fault: to leave it out changes the training
        **({"arguments": _arguments(finding)} if finding.arguments else {}),  # of the call, for writers of edits
    }


def _arguments(finding: Finding) -> dict[str, Any]:
    """Return what was measured of the call that a finding names: shapes as lists, numbers without infinities."""
    return {
        each.name: finite(each.value) if isinstance(each.value, float) else to_plain(each.value)
        for each in finding.arguments
    }


def _message(finding: Finding) -> str:
    """Return the finding in words, with the reason of its bound where its share alone would give another one."""
    if not finding.bound_by:
        return finding.message
    return f"{finding.message} At most {format_ratio(finding.max_speedup)} ({finding.bound_by})."


def trial_row(trial: Trial) -> dict[str, Any]:
    """Return one trial."""
    return {
        "number": trial.number,
        **_selection(trial.candidate.selection),
        "equivalence": trial.candidate.equivalence.value,
        "base": [_selection(each) for each in trial.base],
        "verdict": trial.verdict.value,
        "reason": trial.reason,
        **_comparison(trial.comparison),
        **_equality(trial.equality),
        "hits": dict(trial.hits),
        "warmup_s": finite(trial.warmup_s),
        "wall_s": finite(trial.wall_s),
    }


def _selection(selection: Selection) -> dict[str, Any]:
    """Return a fix and its settings."""
    return {"fix": selection.fix, "settings": _plain(selection.settings)}


def _comparison(found: Comparison | None) -> dict[str, Any]:
    """Return how fast a candidate was, null where it was not timed."""
    if found is None or not found.pairs:
        keys = ("speedup", "low", "high", "num_pairs", "baseline_ms", "candidate_ms")
        return {key: 0 if key == "num_pairs" else None for key in keys}
    number = len(found.pairs)
    return {
        "speedup": finite(found.speedup),
        "low": finite(found.low),
        "high": finite(found.high),
        "num_pairs": number,
        "baseline_ms": finite(sum(pair.baseline_ms for pair in found.pairs) / number),
        "candidate_ms": finite(sum(pair.candidate_ms for pair in found.pairs) / number),
    }


def _equality(found: Equality | None) -> dict[str, Any]:
    """Return how equal the results of a candidate were, null where that was not tested."""
    if found is None:
        return {"results_equal": None, "deterministic": None, "checks": []}
    return {
        "results_equal": found.equal,
        "deterministic": found.deterministic,
        "checks": [_plain(to_plain(check)) for check in found.checks],
    }


def recipe_row(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe with where it was proven."""
    return {
        "script": recipe.script,
        "equivalence": recipe.equivalence.value,
        "fixes": [_kept(kept) for kept in recipe.fixes],
        "proven": _plain(to_plain(recipe.proof)),
        "expected": _plain(expected_row(recipe)),
    }


def _kept(kept: Kept) -> dict[str, Any]:
    """Return one fix of a recipe."""
    return {
        **_selection(kept.selection),
        "equivalence": kept.equivalence.value,
        "speedup": finite(kept.speedup),
        "low": finite(kept.low),
        "high": finite(kept.high),
    }


def _plain(value: object) -> Any:
    """Return `value` as JSON has it: numbers that are finite, at any depth."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def finite(value: float) -> float:
    """Return `value` as a number that JSON has: what is not a number becomes 0."""
    if math.isnan(value):
        return 0.0
    return float(max(-LARGEST, min(LARGEST, value)))
