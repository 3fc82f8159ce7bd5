"""What the page says, as plain values for its template: sentences are those of the terminal, figures have units."""

import math
import time
from collections.abc import Collection, Sequence
from typing import Any

from rich.text import Text

from flatout.analysis.statistics import median
from flatout.report.account import epoch_lines, format_rate, rank_lines, shown_phases, spread_in_words, warmup_lines
from flatout.report.cards import amounts, format_evidence
from flatout.report.declined import check_line, format_factor, format_interval, reason
from flatout.report.expected import whole_of
from flatout.report.headroom import rows as headroom_rows
from flatout.report.headroom import sentences as headroom_sentences
from flatout.report.headroom import with_workers
from flatout.report.html.results import results_sentence
from flatout.report.html.timeline import timeline
from flatout.report.layout import Look
from flatout.report.tune_summary import (
    IN_WORDS,
    HandoverStair,
    confirmation_lines,
    handover_lines,
    headline,
    is_tuned,
    mean_times,
    remarks,
)
from flatout.report.untried import next_class, untried_rows
from flatout.report.user_source import relative, source_lines
from flatout.report.verdict import (
    best_finding,
    device_in_words,
    doubts,
    ending,
    format_speedup,
    is_doubt,
    title,
    verdict,
)
from flatout.report.written_changes import ReportedChange, ReportedChanges
from flatout.report.yardsticks import leave_it, yardsticks
from flatout.schema.finding import Breakdown, Finding, OutsideShare, PhaseShare
from flatout.schema.phase import STEP_PHASES
from flatout.schema.report import Report
from flatout.schema.run import Header, Run, Step
from flatout.schema.secrets import masked_words
from flatout.schema.trial import Trial, Verdict
from flatout.units import format_bytes, format_ms, format_seconds, format_share

__all__ = ["sections"]

AROUND = 3
"""Lines of the user's code shown before and after the one that a finding names."""

NUM_STEPS = 12
"""Steps drawn one by one: enough to see a pattern of pairs, few enough to tell apart on a phone."""

_WIDE = Look(width=100_000)


def sections(
    report: Report,
    *,
    preview: Collection[str],
    handover: HandoverStair | None,
    price_h: float,
    changes: ReportedChanges,  # of the user's source
) -> dict[str, Any]:
    """Return every value that the template uses."""
    run, breakdown = report.run, report.breakdown
    tuned = handover is not None or is_tuned(report)
    findings = [finding for finding in report.findings if not is_doubt(finding)]
    workers = with_workers(run)
    return {
        "title": title(run),
        "subtitle": _subtitle(run),
        "verdict": headline(report) if tuned else verdict(report),
        "good": report.recipe is not None if tuned else bool(breakdown.measured) and best_finding(report) is None,
        "before": verdict(report) if tuned else "",
        "ending": ending(run),
        "figures": _figures(report) if breakdown.measured else [],
        "confirmation": _confirmation(report),
        "phases": [_phase(part, breakdown) for part in shown_phases(breakdown) if breakdown.measured],
        "outside": [_outside(part) for part in sorted(breakdown.outside, key=lambda part: -part.s) if part.s > 0],
        "sentences": _sentences(report, price_h),
        "usual": yardsticks(breakdown),
        "leave_it": leave_it(report),
        "headroom": [(row, _percent(row.left)) for row in headroom_rows(report.headroom, breakdown, workers=workers)],
        "headroom_told": headroom_sentences(report.headroom, breakdown, workers=workers),
        "steps": _steps(run, breakdown),
        "timeline": timeline(run),
        "each": "" if run.steps_each <= 1 else f", each the mean of {run.steps_each} steps",
        "findings": [_finding(each, run.header, each.code in preview, changes.findings.get(each)) for each in findings],
        **_tried(report, handover),
        "recipe": _change(changes.recipe),
        "results": results_sentence(report),
        "notes": doubts(report),
        "environment": _environment(run),
        **{"seams": sorted(run.seams.items()), "folder": report.folder},
    }


def _tried(report: Report, handover: HandoverStair | None) -> dict[str, Any]:
    """Return what a tune tried, what it did not try, and what it hands over."""
    return {
        "trials": sorted((_trial(trial, report) for trial in report.trials), key=lambda row: not row["kept"]),
        "untried": untried_rows(report.untried),
        "next_class": next_class(report),
        "remarks": _plain(remarks(report, _WIDE)),
        "handover": _plain(handover_lines(handover, _WIDE)),
    }


def _plain(lines: Sequence[Text]) -> list[str]:
    return [line.plain.strip() for line in lines]


def _subtitle(run: Run) -> str:
    """Return when and with what it was recorded."""
    parts = [f"{run.num_steps:,} steps recorded"] if run.num_steps else []
    if run.header.started_unix_s > 0:
        parts.append(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.header.started_unix_s)))
    if run.environment.torch:
        parts.append(f"torch {run.environment.torch}")
    return ", ".join(parts)


def _figures(report: Report) -> list[tuple[str, str, str]]:
    """Return the few figures that stand on top: what it is, the figure, how sure it is."""
    breakdown = report.breakdown
    means = f", means of {breakdown.steps_each}" if breakdown.steps_each > 1 else ""
    spread = f"{spread_in_words(breakdown)}, n={breakdown.measured:,}{means}"
    found = [("a step as it is" if is_tuned(report) else "a step", format_ms(breakdown.mean_ms), spread)]
    if breakdown.samples_per_s:
        rate, _, unit = format_rate(breakdown.samples_per_s).partition(" ")
        found.append((unit, rate, ""))
    found.append(("95% of steps below", format_ms(breakdown.p95_ms), f"median {format_ms(breakdown.median_ms)}"))
    best = best_finding(report)
    if report.confirmation is not None and report.confirmation.pairs and report.recipe is not None:
        proof = report.confirmation
        interval = f"{format_interval(proof.low, proof.high)}, n={len(proof.pairs)} pairs"
        found.insert(0, ("as fast under the recipe", format_factor(proof.speedup), interval))
        whole = whole_of(report.recipe)
        if whole is not None and whole.epochs:
            took = f"{format_seconds(whole.tuned.whole_s(whole.epochs))} in place of "
            took += format_seconds(whole.plain.whole_s(whole.epochs))
            found.insert(0, ("as fast, the whole training", format_factor(whole.speedup(whole.epochs)), took))
    elif best is not None and best.max_speedup >= 1.005:
        found.append(("to gain", format_speedup(best), f"{best.code} {best.name}"))
    return found


def _confirmation(report: Report) -> dict[str, Any] | None:
    """Return the step before and after, where a whole recipe was measured against the script as it is."""
    times = mean_times(report.confirmation) if report.confirmation is not None else None
    if times is None:
        return None
    rows = zip(("as it is", "under the recipe"), times, strict=True)
    return {
        "rows": [(name, format_ms(time_ms), _percent(time_ms / max(times))) for name, time_ms in rows],
        "told": _plain(confirmation_lines(report, _WIDE)),
    }


def _phase(part: PhaseShare, breakdown: Breakdown) -> dict[str, str]:
    largest = max(each.share for each in breakdown.phases)
    return {
        "name": part.phase.value,
        "ms": format_ms(part.ms),
        "share": format_share(part.share),
        "width": _percent(part.share / largest if largest else 0.0),
    }


def _outside(part: OutsideShare) -> tuple[str, str, str]:
    return part.phase.value.replace("_", " "), format_seconds(part.s), format_share(part.share)


def _percent(share: float) -> str:
    """Return a width for a style: plain digits, whatever the number was."""
    return f"{100 * min(1.0, max(0.0, share)):.2f}%" if math.isfinite(share) else "0%"


def _sentences(report: Report, price_h: float) -> list[str]:
    """Return what stands below the account: the warm-up, an epoch and its price, ranks."""
    lines = [
        *warmup_lines(report.breakdown, _WIDE),
        *epoch_lines(report, price_h, _WIDE),
        *rank_lines(report.run.ranks, _WIDE),
    ]
    return _plain(lines)


def _steps(run: Run, breakdown: Breakdown) -> list[dict[str, Any]]:
    """Return some steps in a row from the middle of the steady ones, each as parts of the longest."""
    steady = run.steps[-len(breakdown.step_ms) :] if breakdown.step_ms else ()
    first = max(0, (len(steady) - NUM_STEPS) // 2)
    shown = steady[first : first + NUM_STEPS]
    longest = max((sum(step.phases_ns) for step in shown), default=0)
    if not longest:
        return []
    usual = median([sum(step.phases_ns) for step in shown])
    number = len(run.steps) - len(steady) + first
    return [
        {
            "number": (number + position) * max(1, run.steps_each),
            "ms": format_ms(sum(step.phases_ns) / 1e6),
            "slow": sum(step.phases_ns) > 1.5 * usual,
            "told": ", ".join(told for _, _, told in _parts(step, longest)),
            "parts": _parts(step, longest),
        }
        for position, step in enumerate(shown)
    ]


def _parts(step: Step, longest_ns: int) -> list[tuple[str, str, str]]:
    """Return the phases of one step: name, width, and both in words."""
    return [
        (phase.value, _percent(spent / longest_ns), f"{phase.value} {format_ms(spent / 1e6)}")
        for phase, spent in zip(STEP_PHASES, step.phases_ns, strict=True)
        if spent > 0
    ]


def _finding(finding: Finding, header: Header, preview: bool, change: ReportedChange | None) -> dict[str, Any]:
    place = finding.location
    lines = source_lines(place, header.started_unix_s, around=AROUND) if place is not None else []
    function = f" in {place.function}" if place is not None and place.function else ""
    return {
        "code": finding.code,
        "name": finding.name,
        "phase": finding.phase.value,
        "preview": preview,
        "gain": ", ".join(amounts(finding)),
        "place": f"{relative(place.file, header)}:{place.line}{function}" if place is not None else "",
        "lines": [(number, text, place is not None and number == place.line) for number, text in lines],
        "message": finding.message,
        "fixes": finding.fixes,
        "change": _change(change),
        "evidence": [(each.name, format_evidence(each)) for each in finding.evidence],
    }


def _change(change: ReportedChange | None) -> dict[str, Any] | None:
    """Return a diff as lines with what each does; names of files and places are quiet."""
    if change is None:
        return None
    kinds = {"+": "added", "-": "removed", "@": "quiet"}
    quiet = ("--- a/", "+++ b/")
    lines = [("quiet" if line.startswith(quiet) else kinds.get(line[:1], ""), line) for line in change.diff]
    return {"what": change.what, "lines": lines}


def _trial(trial: Trial, report: Report) -> dict[str, Any]:
    """Return a row of the staircase: what, how fast with which interval, how equal, why."""
    kept = report.recipe is not None and trial.candidate.selection in report.recipe.selections
    kept = kept or (report.recipe is None and trial.verdict is Verdict.KEPT)
    found = trial.comparison if trial.comparison is not None and trial.comparison.pairs else None
    checks = trial.equality.checks if trial.equality is not None else ()
    return {
        "label": trial.candidate.selection.label,
        "kept": kept,
        "results": IN_WORDS[trial.candidate.equivalence],
        "gain": format_factor(found.speedup) if found else "",
        "interval": format_interval(found.low, found.high) if found else "",
        "pairs": len(found.pairs) if found else 0,
        "left": _on_axis(found.low) if found else "",
        "right": _percent(1 - _place(found.high)) if found else "",
        "dot": _on_axis(found.speedup) if found else "",
        "reason": "kept" if kept else reason(trial),
        "checks": [check_line(each) for each in checks],
        "hits": [(place, f"{number:,}") for place, number in trial.hits.items()],
    }


_AXIS = (0.5, 8.0)
"""What the intervals are drawn on, in logarithms: half as fast to eight times; 1.0x lies at a quarter of it."""


def _place(speedup: float) -> float:
    low, high = map(math.log, _AXIS)
    return min(1.0, max(0.0, (math.log(max(speedup, 1e-9)) - low) / (high - low))) if math.isfinite(speedup) else 1.0


def _on_axis(speedup: float) -> str:
    return _percent(_place(speedup))


def _environment(run: Run) -> list[tuple[str, str]]:
    """Return machine and software, as far as they are known."""
    environment = run.environment
    rows = [
        ("device", device_in_words(environment)),
        ("CPU", environment.cpu),
        ("cores", str(environment.num_cpus)),
        ("memory", format_bytes(environment.memory_bytes) if environment.memory_bytes else ""),
        ("platform", environment.platform),
        ("Python", environment.python),
        ("torch", environment.torch),
        ("threads of torch", str(environment.torch_threads)),
        ("start method of workers", environment.start_method),
        ("ranks", str(run.header.world_size)),
        ("arguments", " ".join(masked_words(run.header.argv))),
        ("light probes", f"{run.probe_us:.1f} us a step, as timed in a tight loop" if run.probe_us else ""),
        *sorted(environment.variables.items()),
    ]
    return [(name, value) for name, value in rows if value]
