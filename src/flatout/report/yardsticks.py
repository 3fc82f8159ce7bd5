"""Whether a step is made as such steps usually are: a yardstick for each phase, and a plain *leave it*.

The yardsticks are round figures: below the limits at which other tools begin to warn of waiting, copies and host code
(5% to 20% of a step), and above what two healthy scripts of `benchmarks/planted` have (input 1.3% and 1.6%, optimizer
2.0% and 2.4%, host 0.5% and 1.2%; 2 CPU cores, n=91 and 156 steps).
"""

from flatout.report.account import shown_phases
from flatout.report.verdict import COMPUTING, FEWEST_STEPS, HEALTHY_SHARE, WORTH_READING, device_in_words, is_fault
from flatout.rules.facts.machine_facts import is_disturbed
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.report import Report
from flatout.schema.run import Run
from flatout.units import format_share

__all__ = ["leave_it", "yardsticks"]

_USUAL: dict[Phase, tuple[float, str]] = {  # the most that is usual, and what it depends on
    Phase.INPUT: (0.05, "batches are ready when the step asks for them"),
    Phase.TRANSFER: (0.05, "one copy of a batch, from pinned memory"),
    Phase.FORWARD: (0.50, "a quarter to a half of a step"),
    Phase.BACKWARD: (0.65, "one to two times the forward pass; more where checkpointing computes it again"),
    Phase.OPTIMIZER: (0.15, "more where the model is large for its batch"),
    Phase.SYNC: (0.05, "a wait costs nothing while the device computes"),
    Phase.CHECKPOINT: (0.02, "saves are rare"),
    Phase.HOST: (0.05, "zeroing gradients, the loss, a line of log now and then"),
}
_BETWEEN = {Phase.VALIDATION: 0.25, Phase.EPOCH_GAP: 0.02, Phase.CHECKPOINT: 0.02}  # of the recording without start-up
_ARITHMETIC = {
    Phase.FORWARD: "the forward pass",
    Phase.BACKWARD: "the backward pass",
    Phase.OPTIMIZER: "the optimizer",
}
_MAIN_PART = 0.15  # of a step, from which on a phase is named among those that bound it


def yardsticks(breakdown: Breakdown) -> list[str]:
    """Return a sentence for each phase that takes part of the step: its share, and what is usual."""
    if not breakdown.measured:
        return []
    return [_yardstick(part.phase, part.share) for part in shown_phases(breakdown)]


def _yardstick(phase: Phase, share: float) -> str:
    most, why = _USUAL[phase]
    word = "usual" if share <= most else "more than usual"
    return f"{phase.value} {format_share(share)}: {word} (up to {format_share(most)}: {why})."


def leave_it(report: Report) -> str:
    """Return that the script is made well, what bounds it, and what would be the next larger step; "" elsewhere.

    It is said where no finding promises 5%, most of a step computes, and little time lies between the steps.
    """
    breakdown = report.breakdown
    gains = [each.max_speedup for each in report.findings if is_fault(each)]
    computing = sum(breakdown.share(phase) for phase in COMPUTING)
    between = any(breakdown.loop_share(breakdown.outside_s(phase)) > most for phase, most in _BETWEEN.items())
    if breakdown.measured < FEWEST_STEPS or max(gains, default=1.0) >= WORTH_READING:
        return ""
    if computing < HEALTHY_SHARE or between:
        return ""
    seen = "as far as a busy machine shows" if is_disturbed(report.run) else "as far as can be seen"
    return f"Leave it: {seen}, the script is well made. {_bound(report)} {_next_step(report.run)}"


def _bound(report: Report) -> str:
    parts = [part for part in shown_phases(report.breakdown) if part.phase in COMPUTING and part.share >= _MAIN_PART]
    named = " and ".join(f"{_ARITHMETIC[part.phase]} ({format_share(part.share)})" for part in parts)
    threads = report.run.environment.torch_threads
    on = f" with {threads} thread{'s' if threads != 1 else ''}" if report.run.environment.device_kind == "cpu" else ""
    verb = "bounds" if len(parts) == 1 else "bound"
    return f"{named[0].upper()}{named[1:]} {verb} each step, on {device_in_words(report.run.environment)}{on}."


def _next_step(run: Run) -> str:
    """Return what makes such a step faster that is no repair."""
    options = []
    if not any(model.compiled for model in run.models):
        options.append("torch.compile")
    options.append("bf16 autocast")
    options.append("a larger batch (another training)")
    options.append("a GPU" if run.environment.device_kind == "cpu" else "more devices")
    told = f"{', '.join(options[:-1])} or {options[-1]}"
    return f"The next larger step is no repair: {told}. `flatout tune` tries the first ones."
