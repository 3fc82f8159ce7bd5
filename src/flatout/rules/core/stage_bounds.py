"""Which stage of making a batch a finding is about, and how the measured ceilings bound its promise."""

from collections.abc import Iterator
from dataclasses import replace

from flatout.analysis.headroom_stages import gain_between
from flatout.analysis.judge import FLOOR
from flatout.rules.core.bounds import in_mean_steps
from flatout.rules.core.rule import Rule
from flatout.rules.facts.input_stages import WHOLE_INPUT, WHOLE_TRANSFER, Stage
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.machine_facts import is_disturbed
from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run

__all__ = ["bounded"]

_WHOLE = {Phase.INPUT: WHOLE_INPUT, Phase.TRANSFER: WHOLE_TRANSFER}
_HELD = {Phase.INPUT: "that replay their input", Phase.TRANSFER: "whose batch is on the device"}


def bounded(
    finding: Finding, rule: Rule, run: Run, headroom: tuple[Ceiling, ...], breakdown: Breakdown | None = None
) -> Finding | None:
    """Return the finding of `rule` with its promise limited by the ceilings; None where there is nothing to gain.

    Work that overlaps with other work can wait long and still give little: only holding the input shows that. A finding
    about a whole stage takes the measured gain of that stage as its promise. Beside other programs, where a gain is not
    known well, the upper end of its interval is the limit.
    """
    if finding.code.startswith("MS"):
        return finding
    most, own = finding.max_speedup, False
    for stage in _stages(finding, rule, run):
        gain = gain_between(headroom, *stage)
        if gain is None:
            continue
        if gain.high < FLOOR:
            return None
        if not own and rule.takes_whole_stage and stage != _WHOLE[finding.phase] and gain.sure:
            most, own = gain.speedup, True
        told = gain.speedup if gain.sure or not is_disturbed(run) else max(gain.speedup, gain.high)
        most = min(most, told * _unseen(stage, run, breakdown, headroom))
    if most == finding.max_speedup:
        return finding
    why = f"measured: steps {_HELD[finding.phase]} give no more" if most < finding.max_speedup else "measured"
    return replace(finding, max_speedup=max(1.0, most), bound_by=why)


def _unseen(stage: Stage, run: Run, breakdown: Breakdown | None, headroom: tuple[Ceiling, ...]) -> float:
    held = next((each for each in headroom if each.ceiling == stage[1] and not stage[0]), None)
    return 1.0 if held is None or breakdown is None else in_mean_steps(run, breakdown, held)


def _stages(finding: Finding, rule: Rule, run: Run) -> Iterator[Stage]:
    """Yield the stage that a finding is about where that is known, then the whole of its phase."""
    if finding.phase not in _WHOLE:
        return
    stage = rule.stage(finding, run) if callable(rule.stage) else rule.stage
    if stage is not None:
        yield ("", stage[1]) if _overlaps(run) else stage
    yield _WHOLE[finding.phase]


def _overlaps(run: Run) -> bool:
    """Return whether batches are made by workers, or used on a device, in parallel with the training process.

    Later stages may then be hidden behind other work: a ceiling tells what a stage and all stages before it cost
    together, and the difference of two ceilings does not tell what one stage costs.
    """
    loader = training_loader(run)
    return run.environment.device_kind != "cpu" or (loader is not None and loader.num_workers > 0)
