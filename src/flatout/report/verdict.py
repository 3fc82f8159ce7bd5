"""The verdict: what a person should know if they read one sentence."""

from flatout.report.visible import shorten_path
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.report import Report
from flatout.schema.run import Environment, Frame, Run
from flatout.units import format_ratio, format_share

__all__ = [
    "LARGEST_SPEEDUP",
    "SUBJECTS",
    "best_finding",
    "device_in_words",
    "doubts",
    "ending",
    "format_bound",
    "format_speedup",
    "is_doubt",
    "is_fault",
    "short_place",
    "title",
    "verdict",
]

COMPUTING = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

HEALTHY_SHARE = 0.7
"""A step that computes for at least this share has nothing in front of it worth a sentence."""

WORTH_READING = 1.05
"""Below this speed-up the verdict says first how little there is to gain."""

FEWEST_STEPS = 5
"""Below so many steps a sentence about the training would be about chance."""

LARGEST_SPEEDUP = 1000.0

LONGEST_NAME = 48

_ENDS = {
    "script failed": "The script failed",
    "interrupted": "The recording was interrupted",
    "killed": "The script was killed",
    "unknown": "The recording is cut off",
}

SUBJECTS = {
    Phase.INPUT: ("Training waits", "of each step is spent loading data"),
    Phase.TRANSFER: ("Training copies", "of each step is spent moving data between host and device"),
    Phase.FORWARD: ("Training computes", "of each step is the forward pass"),
    Phase.BACKWARD: ("Training computes", "of each step is the backward pass"),
    Phase.OPTIMIZER: ("Training computes", "of each step is the optimizer"),
    Phase.SYNC: ("Training stalls", "of each step the host waits for the device"),
    Phase.CHECKPOINT: ("Training pauses", "of its time goes into checkpoints"),
    Phase.HOST: ("Training waits for Python", "of each step is the loop's own Python code"),
    Phase.STARTUP: ("Training starts late", "of its time goes by before the first step"),
    Phase.EPOCH_GAP: ("Training pauses", "of its time goes by between epochs"),
    Phase.VALIDATION: ("Training pauses", "of its time is validation"),
    Phase.ROLLOUT: ("Training pauses", "of its time collects the data that it learns from"),
    Phase.OTHER: ("Training pauses", "of its time lies outside the steps"),
}

DEEP_RUN_LOST = "the deep run"
"""How notes begin that say why a diagnosis saw the timed run alone."""


def verdict(report: Report) -> str:
    """Return the sentence; it quotes the script and so has to be made safe before it is shown."""
    breakdown = report.breakdown
    if breakdown.measured == 0:
        return "Nothing was measured: no training step was completed."
    if breakdown.measured < FEWEST_STEPS:
        return f"Too short to say: n={breakdown.measured} after warm-up. Let the script train longer."
    best = best_finding(report)
    if best is None and any(note.startswith(DEEP_RUN_LOST) for note in report.run.notes):
        return "Nothing is known of causes: the deep run, which looks for them, measured nothing. Diagnose once more."
    if best is None:
        return _without_findings(breakdown)
    subject = SUBJECTS[best.phase][0]
    share, spent = _spent(best, breakdown)
    if best.max_speedup < WORTH_READING:
        subject = "Little to gain" if best.max_speedup < 1.005 else f"Little to gain ({format_speedup(best)})"
        return f"{subject}: {format_share(share)} {spent}; {_where(best)} comes first."
    return f"{subject}: {format_share(share)} {spent}; {_where(best)} comes first, {format_bound(best)}."


def ending(run: Run) -> str:
    """Return how the recording ended when that was no good end, "" when it was."""
    if run.end.reason not in _ENDS:
        return ""
    sentence = f"{_ENDS[run.end.reason]} after {run.num_steps} step{'s' if run.num_steps != 1 else ''}"
    return f"{sentence}: {run.end.error}" if run.end.error else f"{sentence}."


def device_in_words(environment: Environment) -> str:
    """Return `2 x NVIDIA H100` or `AMD EPYC (2 cores)`."""
    if environment.device_kind == "cpu":
        return f"{environment.device} ({environment.num_cpus} core{'s' if environment.num_cpus != 1 else ''})"
    times = f"{environment.num_devices} x " if environment.num_devices > 1 else ""
    return f"{times}{environment.device}"


def best_finding(report: Report) -> Finding | None:
    """Return the finding to begin with, None when there is none but what is optional, and doubts."""
    return next((finding for finding in report.findings if is_fault(finding)), None)


def is_fault(finding: Finding) -> bool:
    """Return whether a finding is about the script, and names what can be mended without another training."""
    return not finding.optional and not is_doubt(finding)


def is_doubt(finding: Finding) -> bool:
    """Return whether a finding is about the measurement itself, not about the script."""
    return finding.code.startswith("MS")


def title(run: Run) -> str:
    """Return which script, and what it ran on."""
    return f"{run.header.script or 'unknown script'} on {device_in_words(run.environment)}"


def doubts(report: Report) -> list[str]:
    """Return what may be wrong with the measurement itself, a sentence or more each."""
    found = [f"{each.code} {each.name}: {each.message}" for each in report.findings if is_doubt(each)]
    return [*found, *report.run.notes]


def format_speedup(finding: Finding) -> str:
    """Return `at most 2.6x`."""
    if finding.max_speedup > LARGEST_SPEEDUP:
        return f"at most {LARGEST_SPEEDUP:.0f}x and more"
    return f"at most {format_ratio(finding.max_speedup)}"


def format_bound(finding: Finding) -> str:
    """Return `at most 2.6x`, with the reason in brackets where its share alone would give another figure."""
    reason = f" ({finding.bound_by})" if finding.bound_by else ""
    return format_speedup(finding) + reason


def short_place(place: Frame) -> str:
    """Return `train.py:48`, the last part of the file and the line."""
    name = place.file.replace("\\", "/").rpartition("/")[2]
    return f"{shorten_path(name, LONGEST_NAME)}:{place.line}"


def _spent(best: Finding, breakdown: Breakdown) -> tuple[float, str]:
    """Return a share of the time, and what it goes to: the phase of `best`, or all phases that it lies in."""
    spent, own = SUBJECTS[best.phase][1], breakdown.share(best.phase)
    if best.phase not in STEP_PHASES or best.phase is Phase.CHECKPOINT:
        return best.share, spent
    if best.phase not in COMPUTING or best.share <= own:
        return max(best.share, own), spent
    computing = sum(breakdown.share(phase) for phase in COMPUTING)
    if best.share <= computing:
        return computing, "of each step is forward, backward and optimizer"
    return best.share, "of each step the device computes"  # while the host waits for it


def _where(finding: Finding) -> str:
    name = f"{finding.code} {finding.name}"
    return name if finding.location is None else f"{short_place(finding.location)} ({name})"


def _without_findings(breakdown: Breakdown) -> str:
    computing = sum(breakdown.share(phase) for phase in COMPUTING)
    if computing >= HEALTHY_SHARE:
        return f"Nothing found: healthy. {format_share(computing)} of each step is forward, backward and optimizer."
    largest = max(breakdown.phases, key=lambda part: part.share)
    return f"No cause found, but {format_share(largest.share)} {SUBJECTS[largest.phase][1]}."
