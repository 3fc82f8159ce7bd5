"""The JSON that a program can rely on, schema 1: keys, their order and their units are a promise.

A change of any of them raises `SCHEMA`, and readers refuse what they do not know.

A row of `trials`: what was tried (`fix`, `settings`, `equivalence` that it claims), on top of which other fixes
(`base`), what came of it (`verdict`, `reason` in words), how fast (`speedup` with its 95 % interval `low` to `high`
from `num_pairs` pairs of blocks; mean milliseconds a step without and with it; null where nothing was timed), how
equal (`results_equal`: null where it was not tested; `deterministic`: the untouched script gives the same bits twice;
`checks`, each with the worst `value` and its `limit`), how often it acted (`hits` by place), and what it cost:
`warmup_s` once a training, `wall_s` for the trial itself. `recipe` says the same as `flatout.toml`.
"""

import json
from collections.abc import Mapping
from typing import Any

from flatout.errors import BadRecording
from flatout.report.rows import ceiling_row, finding_row, finite, recipe_row, trial_row
from flatout.schema.finding import Breakdown
from flatout.schema.plain import to_plain
from flatout.schema.report import Report

__all__ = ["REPORT_FILE", "SCHEMA", "dumps", "from_json", "to_json"]

SCHEMA = 1
REPORT_FILE = "report.json"

_Kind = type | tuple[type, ...]
_NUMBER: _Kind = (int, float)
_NUMBER_OR_NULL: _Kind = (int, float, type(None))
_KEYS: Mapping[str, _Kind] = {
    "schema": int,
    "script": str,
    "device": str,
    "environment": dict,
    "steps": dict,
    "breakdown": list,
    "outside": list,
    "headroom": list,
    "findings": list,
    "trials": list,
    "recipe": (dict, type(None)),
}
_STEPS: Mapping[str, _Kind] = {
    "measured": int,
    "median_ms": _NUMBER,
    "p95_ms": _NUMBER,
    "samples_per_s": _NUMBER_OR_NULL,
}
_ROWS: Mapping[str, Mapping[str, _Kind]] = {
    "breakdown": {"phase": str, "ms": _NUMBER, "share": _NUMBER},
    "outside": {"phase": str, "s": _NUMBER, "share": _NUMBER},
    "headroom": {"ceiling": str, "median_ms": _NUMBER, "speedup": _NUMBER},
    "findings": {
        "code": str,
        "name": str,
        "phase": str,
        "share": _NUMBER,
        "max_speedup": _NUMBER,
        "location": (dict, type(None)),
        "message": str,
        "evidence": list,
        "fixes": list,
    },
    "trials": {
        "number": int,
        "fix": str,
        "settings": dict,
        "equivalence": str,
        "base": list,
        "verdict": str,
        "reason": str,
        "speedup": _NUMBER_OR_NULL,
        "low": _NUMBER_OR_NULL,
        "high": _NUMBER_OR_NULL,
        "num_pairs": int,
        "baseline_ms": _NUMBER_OR_NULL,
        "candidate_ms": _NUMBER_OR_NULL,
        "results_equal": (bool, type(None)),
        "deterministic": (bool, type(None)),
        "checks": list,
        "hits": dict,
        "warmup_s": _NUMBER,
        "wall_s": _NUMBER,
    },
}
_CHECK: Mapping[str, _Kind] = {"name": str, "passed": bool, "value": _NUMBER, "limit": _NUMBER, "detail": str}
_RECIPE: Mapping[str, _Kind] = {"script": str, "equivalence": str, "fixes": list, "proven": dict}
_KEPT: Mapping[str, _Kind] = {
    "fix": str,
    "settings": dict,
    "equivalence": str,
    "speedup": _NUMBER,
    "low": _NUMBER,
    "high": _NUMBER,
}


def to_json(report: Report) -> dict[str, Any]:
    """Return `report` as the schema-1 document, in plain values that any JSON writer takes."""
    breakdown = report.breakdown
    return {
        "schema": SCHEMA,
        "script": report.run.header.script,
        "device": report.run.environment.device,
        "environment": to_plain(report.run.environment),
        "steps": _steps(breakdown),
        "breakdown": [
            {"phase": part.phase.value, "ms": finite(part.ms), "share": finite(part.share)} for part in breakdown.phases
        ],
        "outside": [
            {"phase": part.phase.value, "s": finite(part.s), "share": finite(part.share)} for part in breakdown.outside
        ],
        "headroom": [ceiling_row(ceiling) for ceiling in report.headroom],
        "findings": [finding_row(each) for each in sorted(report.findings, key=lambda each: -finite(each.max_speedup))],
        "trials": [trial_row(trial) for trial in report.trials],
        "recipe": None if report.recipe is None else recipe_row(report.recipe),
    }


def dumps(report: Report) -> str:
    """Return `report` as JSON text in ASCII, so that no name in it can break a file or a terminal."""
    return json.dumps(to_json(report), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def from_json(text: str) -> dict[str, Any]:
    """Return the document that `dumps` wrote, checked.

    Raises:
        BadRecording: `text` is no JSON, no report, or a report of another schema.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecording(f"This is no JSON report: {error}.") from None
    if not isinstance(document, dict) or "schema" not in document:
        raise BadRecording("This JSON is no flatout report: it names no schema.")
    if document["schema"] != SCHEMA or isinstance(document["schema"], bool):
        raise BadRecording(
            f"This report has schema {document['schema']!r}; this version of flatout reads schema {SCHEMA}.",
            advice="Read it with the version that wrote it, or make it again with `flatout report DIR --json FILE`.",
        )
    _check("the report", document, _KEYS)
    _check("steps", document["steps"], _STEPS)
    for name, keys in _ROWS.items():
        for position, row in enumerate(document[name]):
            _check(f"{name}[{position}]", row, keys)
    _check_nested(document)
    return document


def _check_nested(document: Mapping[str, Any]) -> None:
    """Refuse a document whose trials or recipe hold rows of the wrong kind."""
    for number, trial in enumerate(document["trials"]):
        for position, row in enumerate(trial["checks"]):
            _check(f"trials[{number}].checks[{position}]", row, _CHECK)
    if document["recipe"] is not None:
        _check("recipe", document["recipe"], _RECIPE)
        for position, row in enumerate(document["recipe"]["fixes"]):
            _check(f"recipe.fixes[{position}]", row, _KEPT)


def _check(place: str, value: object, keys: Mapping[str, _Kind]) -> None:
    """Refuse `value` unless it is an object with all of `keys`, each of its type."""
    if not isinstance(value, dict):
        raise BadRecording(f"This report is damaged: {place} is no object.")
    for name, kind in keys.items():
        if name not in value:
            raise BadRecording(f"This report is damaged: {place} has no {name!r}.")
        truth = isinstance(value[name], bool)
        if not isinstance(value[name], kind) or (truth and bool not in (kind if isinstance(kind, tuple) else (kind,))):
            raise BadRecording(
                f"This report is damaged: {name!r} of {place} is of the wrong kind ({type(value[name]).__name__})."
            )


def _steps(breakdown: Breakdown) -> dict[str, Any]:
    """Return the figures of the steady steps."""
    return {
        "measured": breakdown.measured,
        "median_ms": finite(breakdown.median_ms),
        "p95_ms": finite(breakdown.p95_ms),
        "samples_per_s": None if breakdown.samples_per_s is None else finite(breakdown.samples_per_s),
    }
