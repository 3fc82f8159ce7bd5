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
from flatout.report.user_source import source_lines
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.phase import Phase
from flatout.schema.plain import LARGEST, to_plain
from flatout.schema.report import Report
from flatout.schema.run import Header
from flatout.schema.secrets import masked_plain

__all__ = ["CONTRACT", "REPORT_FILE", "SCHEMA", "dumps", "from_json", "to_json"]

SCHEMA = 1
REPORT_FILE = "report.json"

_AROUND = 5  # lines before and after that of a finding

_Kind = type | tuple[type, ...]
_NUMBER: _Kind = (int, float)
_NUMBER_OR_NULL: _Kind = (int, float, type(None))
_KEYS: Mapping[str, _Kind] = {
    "schema": int,  # 1; raised when a reader of the old form would misread the new one
    "script": str,  # as it was given on the command line
    "device": str,  # "cpu", or the accelerator's name
    "environment": dict,  # machine and software, see below
    "steps": dict,  # the steady steps in figures
    "breakdown": list,  # the time account: every phase of a step, in a fixed order; shares sum to 1
    "outside": list,  # what lies outside the steps
    "headroom": list,  # ceilings, measured by holding the input at a place; empty where none was
    "findings": list,  # the one with the most to gain first
    "trials": list,  # in the order in which they were made; empty without a tune
    "recipe": (dict, type(None)),  # what the tune kept and confirmed; null where there is none
}
_STEPS: Mapping[str, _Kind] = {
    "measured": int,  # steady steps, warm-up left out
    "median_ms": _NUMBER,  # of one step
    "p95_ms": _NUMBER,  # 95 % of the steps take less
    "samples_per_s": _NUMBER_OR_NULL,  # null where the size of a batch is not known
}
_ROWS: Mapping[str, Mapping[str, _Kind]] = {
    "breakdown": {
        "phase": str,  # input, transfer, forward, backward, optimizer, sync, checkpoint, host
        "ms": _NUMBER,  # mean of the steady steps
        "share": _NUMBER,  # of the step, 0 to 1
    },
    "outside": {
        "phase": str,  # startup, epoch_gap, validation, rollout, checkpoint, other
        "s": _NUMBER,  # seconds in all
        "share": _NUMBER,  # of the whole recording, 0 to 1
    },
    "headroom": {
        "ceiling": str,  # where the input was held, or "the loader alone"
        "median_ms": _NUMBER,  # of a step then
        "speedup": _NUMBER,  # of a step then, against the script as it is
    },
    "findings": {
        "code": str,  # of the rule: "IN003"
        "name": str,  # of the rule: "slow-sample-line"
        "phase": str,  # where the time goes
        "share": _NUMBER,  # of the step, or of the recording without start-up where the phase lies outside the steps
        "max_speedup": _NUMBER,  # the most that removing it could give; a bound, not a promise
        "location": (dict, type(None)),  # in the user's own code: file, line, function, and the `code` around it
        "message": str,  # the finding in words
        "evidence": list,  # the numbers behind it: name, value, unit; beside it `arguments` of a measured call
        "fixes": list,  # names of the fixes that address it and may act on this script
    },
    "trials": {
        "number": int,  # counted from 1
        "fix": str,  # what was tried
        "settings": dict,  # of the fix
        "equivalence": str,  # the class of equality that it claims
        "base": list,  # fixes that both sides of the measurement had
        "verdict": str,  # KEPT, NOT_FASTER, SLOWER, RESULTS_DIFFER, NOT_APPLIED, OUT_OF_MEMORY, CRASHED, ...
        "reason": str,  # in words
        "speedup": _NUMBER_OR_NULL,  # null where nothing was timed
        "low": _NUMBER_OR_NULL,  # of its 95 % interval
        "high": _NUMBER_OR_NULL,  # of its 95 % interval
        "num_pairs": int,  # pairs of blocks that were timed
        "baseline_ms": _NUMBER_OR_NULL,  # mean of a step without it
        "candidate_ms": _NUMBER_OR_NULL,  # mean of a step with it
        "results_equal": (bool, type(None)),  # null where it was not tested, or could not be judged
        "deterministic": (bool, type(None)),  # the untouched script gives the same bits twice
        "checks": list,  # of equality
        "hits": dict,  # how often it acted, by place
        "warmup_s": _NUMBER,  # once a training: compilation, search
        "wall_s": _NUMBER,  # what the trial itself took
    },
}
_CHECK: Mapping[str, _Kind] = {
    "name": str,  # what was compared
    "passed": bool,
    "value": _NUMBER,  # the worst that was found
    "limit": _NUMBER,  # what it was held to
    "detail": str,  # in words: what differs first, or what was covered
}
_RECIPE: Mapping[str, _Kind] = {
    "script": str,
    "equivalence": str,  # the weakest class among its fixes
    "fixes": list,  # in the order in which they are applied
    "proven": dict,  # where and when, see below
    "expected": dict,  # of the whole training, see below
}
_EXPECTED: Mapping[str, _Kind] = {
    "speedup": _NUMBER,  # of the training asked for; of 10 epochs, or of a step, where its length is not known
    "plain_s": _NUMBER_OR_NULL,  # seconds it takes as it is; null where its length is not known
    "tuned_s": _NUMBER_OR_NULL,  # seconds it takes under the recipe
    "epochs": list,  # trainings of 1, 10, 100 epochs, each with its `speedup`; empty: an epoch's length is not known
    "step_speedup": _NUMBER,  # of a step of later epochs, as it was confirmed
}
_KEPT: Mapping[str, _Kind] = {
    "fix": str,
    "settings": dict,
    "equivalence": str,  # what it promised, and was held to
    "speedup": _NUMBER,  # its own, on top of the fixes above it
    "low": _NUMBER,  # of its 95 % interval
    "high": _NUMBER,  # of its 95 % interval
}

CONTRACT: Mapping[str, Mapping[str, _Kind]] = {
    "": _KEYS,
    "steps": _STEPS,
    **{f"{name}[]": keys for name, keys in _ROWS.items()},
    "trials[].checks[]": _CHECK,
    "recipe": _RECIPE,
    "recipe.fixes[]": _KEPT,
    "recipe.expected": _EXPECTED,
}
"""The keys of every object of the document, by its place, each with the types that it may have."""


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
            {"phase": part.phase.value, "s": finite(part.s), "share": finite(part.share)}
            for part in breakdown.outside
            if part.phase is not Phase.ROLLOUT or part.s  # only where there is one: it came after schema 1 was promised
        ],
        "headroom": [ceiling_row(ceiling) for ceiling in report.headroom],
        "findings": [
            _finding(each, report.run.header)
            for each in sorted(report.findings, key=lambda each: -finite(each.max_speedup))
        ],
        "trials": [trial_row(trial) for trial in report.trials],
        "recipe": None if report.recipe is None else recipe_row(report.recipe),
    }


def _finding(finding: Finding, header: Header) -> dict[str, Any]:
    """Return a finding, with the code around its line where that is as it was recorded."""
    row = finding_row(finding)
    lines = source_lines(finding.location, header.started_unix_s, around=_AROUND) if finding.location else []
    if lines:
        row["location"]["code"] = [{"line": number, "text": text} for number, text in lines]
    return row


def dumps(report: Report) -> str:
    """Return `report` as JSON text in ASCII, so that no name in it can break a file or a terminal."""
    return json.dumps(masked_plain(to_json(report)), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def from_json(text: str) -> dict[str, Any]:
    """Return the document that `dumps` wrote, checked.

    Raises:
        BadRecording: `text` is no JSON, no report, or a report of another schema.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecording(f"This is not a JSON report: {error}.") from None
    if not isinstance(document, dict) or "schema" not in document:
        raise BadRecording("This JSON is not a flatout report: it has no schema.")
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
        _check("recipe.expected", document["recipe"]["expected"], _EXPECTED)
        for position, row in enumerate(document["recipe"]["fixes"]):
            _check(f"recipe.fixes[{position}]", row, _KEPT)


def _check(place: str, value: object, keys: Mapping[str, _Kind]) -> None:
    """Refuse `value` unless it is an object with all of `keys`, each of its type."""
    if not isinstance(value, dict):
        raise BadRecording(f"This report is damaged: {place} is not an object.")
    for name, kind in keys.items():
        if name not in value:
            raise BadRecording(f"This report is damaged: {place} has no {name!r}.")
        truth = isinstance(value[name], bool)
        if isinstance(value[name], int) and abs(value[name]) > LARGEST:
            raise BadRecording(f"This report is damaged: {name!r} of {place} is a number with too many digits.")
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
