"""Which stage of making a batch a finding is about, and the most that the measured ceilings leave it to give."""

from collections.abc import Iterator
from dataclasses import replace

from flatout.analysis.judge import FLOOR
from flatout.analysis.stairs import gain_between
from flatout.rules.core.bounds import in_mean_steps
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.sample_stacks import where_samples_are_made
from flatout.rules.facts.user_lines import costs, seconds
from flatout.schema.facts import HELD_FIXED, HELD_INPUT, HELD_RAW, HELD_SAMPLES, HELD_TRANSFER
from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run

__all__ = ["bounded"]

_Stage = tuple[str, str]  # the places between which it lies; from the start where the first is ""

_WHOLE = {Phase.INPUT: ("", HELD_INPUT), Phase.TRANSFER: ("", HELD_TRANSFER)}
_READING, _SAMPLES, _TRANSFORMS = ("", HELD_RAW), ("", HELD_SAMPLES), (HELD_RAW, HELD_SAMPLES)
_COLLATE = (HELD_SAMPLES, HELD_INPUT)
_OF_RULES = {"IN004": _COLLATE, "IN005": _COLLATE, "IN012": _SAMPLES, "IN014": _TRANSFORMS, "IN015": _READING}
_OF_LINES = {"sample": _SAMPLES, "collate": _COLLATE, "sampler": _COLLATE}
_REPEATED = "IN007"
_ALL_OF_IT = ("IN004", _REPEATED)  # what they promise is that nothing of the stage is left
_NEARLY_ALL = 0.9


def bounded(
    finding: Finding, run: Run, headroom: tuple[Ceiling, ...], breakdown: Breakdown | None = None
) -> Finding | None:
    """Return the finding with no more promised than the ceilings leave it; None where that is nothing to gain.

    What overlaps with other work can wait long and give little: only holding the input tells. What is all of a stage
    takes its promise from there.
    """
    if finding.code.startswith("MS"):
        return finding
    most, own = finding.max_speedup, False
    for stage in _stages(finding, run):
        gain = gain_between(headroom, *stage)
        if gain is None:
            continue
        if gain.high < FLOOR:
            return None
        if not own and finding.code in _ALL_OF_IT and stage != _WHOLE[finding.phase] and gain.sure:
            most, own = gain.speedup, True
        most = min(most, gain.speedup * _unseen(stage, run, breakdown, headroom))
    return finding if most == finding.max_speedup else replace(finding, max_speedup=max(1.0, most))


def _unseen(stage: _Stage, run: Run, breakdown: Breakdown | None, headroom: tuple[Ceiling, ...]) -> float:
    held = next((each for each in headroom if each.ceiling == stage[1] and not stage[0]), None)
    return 1.0 if held is None or breakdown is None else in_mean_steps(run, breakdown, held)


def _stages(finding: Finding, run: Run) -> Iterator[_Stage]:
    """Yield the stage that a finding is about where that is known, then all that its phase holds."""
    if finding.phase not in _WHOLE:
        return
    stage = _own_stage(finding, run)
    if stage is not None:
        yield ("", stage[1]) if _overlaps(run) else stage
    yield _WHOLE[finding.phase]


def _overlaps(run: Run) -> bool:
    """Return whether batches are made, or used, beside the training process.

    What is left behind others may then be hidden: a ceiling says what goes with a stage and all before it, and the
    difference of two says nothing of what goes with one.
    """
    loader = training_loader(run)
    return run.environment.device_kind != "cpu" or (loader is not None and loader.num_workers > 0)


def _own_stage(finding: Finding, run: Run) -> _Stage | None:
    if finding.code == _REPEATED:
        loader = training_loader(run)
        whole = loader is not None and loader.prefix is not None and loader.prefix.deterministic
        return _SAMPLES if whole else ("", HELD_FIXED)
    if finding.code == "IN003":
        return _stage_of_line(finding, run)
    return _OF_RULES.get(finding.code)


def _stage_of_line(finding: Finding, run: Run) -> _Stage | None:
    """Return the stage in which nearly all of the time below the finding's function was seen."""
    place = finding.location
    if place is None:
        return None
    below = [
        cost
        for cost in costs(run, Phase.INPUT, process=where_samples_are_made(training_loader(run)))
        if any((frame.file, frame.function) == (place.file, place.function) for frame in cost.stack)
    ]
    whole = seconds(below)
    for name, stage in _OF_LINES.items():
        if whole > 0 and seconds([cost for cost in below if cost.stage == name]) >= _NEARLY_ALL * whole:
            return stage
    return None
