"""The JSON that a program can rely on, schema 1: keys, their order and their units are a promise.

A change of any of them raises `SCHEMA`, and readers refuse what they do not know.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from flatout.errors import BadRecording
from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.plain import to_plain
from flatout.schema.report import Report

__all__ = ["REPORT_FILE", "SCHEMA", "dumps", "from_json", "to_json"]

SCHEMA = 1
REPORT_FILE = "report.json"

LARGEST = 1e9
"""What an infinite number is written as: JSON has no infinity."""

_Kind = type | tuple[type, ...]
_NUMBER: _Kind = (int, float)
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
    "samples_per_s": (int, float, type(None)),
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
            {"phase": part.phase.value, "ms": _finite(part.ms), "share": _finite(part.share)}
            for part in breakdown.phases
        ],
        "outside": [
            {"phase": part.phase.value, "s": _finite(part.s), "share": _finite(part.share)}
            for part in breakdown.outside
        ],
        "headroom": [_ceiling(ceiling) for ceiling in report.headroom],
        "findings": [_finding(each) for each in sorted(report.findings, key=lambda each: -_finite(each.max_speedup))],
        "trials": [],
        "recipe": None,
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
    return document


def _check(place: str, value: object, keys: Mapping[str, _Kind]) -> None:
    """Refuse `value` unless it is an object with all of `keys`, each of its type."""
    if not isinstance(value, dict):
        raise BadRecording(f"This report is damaged: {place} is no object.")
    for name, kind in keys.items():
        if name not in value:
            raise BadRecording(f"This report is damaged: {place} has no {name!r}.")
        if not isinstance(value[name], kind) or isinstance(value[name], bool):
            raise BadRecording(
                f"This report is damaged: {name!r} of {place} is of the wrong kind ({type(value[name]).__name__})."
            )


def _steps(breakdown: Breakdown) -> dict[str, Any]:
    """Return the figures of the steady steps."""
    return {
        "measured": breakdown.measured,
        "median_ms": _finite(breakdown.median_ms),
        "p95_ms": _finite(breakdown.p95_ms),
        "samples_per_s": None if breakdown.samples_per_s is None else _finite(breakdown.samples_per_s),
    }


def _ceiling(ceiling: Ceiling) -> dict[str, Any]:
    """Return one measured ceiling."""
    return {
        "ceiling": ceiling.ceiling,
        "median_ms": _finite(ceiling.median_ms),
        "speedup": _finite(ceiling.speedup),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    """Return one finding."""
    return {
        "code": finding.code,
        "name": finding.name,
        "phase": finding.phase.value,
        "share": _finite(finding.share),
        "max_speedup": _finite(finding.max_speedup),
        "location": to_plain(finding.location),
        "message": finding.message,
        "evidence": [{"name": each.name, "value": _finite(each.value), "unit": each.unit} for each in finding.evidence],
        "fixes": list(finding.fixes),
    }


def _finite(value: float) -> float:
    """Return `value` as a number that JSON has: what is not a number becomes 0."""
    if math.isnan(value):
        return 0.0
    return float(max(-LARGEST, min(LARGEST, value)))
