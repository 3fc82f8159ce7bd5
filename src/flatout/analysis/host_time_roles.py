"""Whose work the host's time is: input made by hand, the loss, what comes once an epoch, or the rest of the loop.

The probes see exactly when the host works before, between and after the forward and backward passes, not why. The
deep run's lines say why. In a script that trains from no DataLoader, a statement before the forward pass that makes
what the backward pass needs is input (the forward pass itself where no module is called), and one outside the loop
that repeats the steps lies between epochs. A statement
between forward and backward that the loss is made of is part of the forward pass; where no optimizer of torch makes a
step, code after the backward pass that works on gradients is the optimizer. Host time in the line that asks a loader
for batches is the release of the batch before, which of a worker's shared memory can take longer than the wait. What
looks like a validation between epochs, and makes what the steps are trained on, prepares the next epoch.
"""

import dataclasses
from collections.abc import Mapping
from statistics import median

from flatout.analysis.dataflow import feeds, feeds_result, loops_around, reads_gradients
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Frame, LineCost, Outside, Run, Step

__all__ = ["assign_roles"]

_PART_INDEX = {"lead": 0, "loss": 1, "tail": 2}
_SPINE_SHARE = 0.05  # backward stacks below this share of the backward time do not count
_NEARLY_ALL = 0.8  # of the time of validations
_LUMP = 3.0  # host time before the forward pass that is so many times the median comes once an epoch

Place = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class _Spine:
    """The way from the script to `backward()`: for each function on it, its lines, and the loop that makes steps."""

    lines: Mapping[Place, frozenset[int]]
    outer: frozenset[Place]  # functions that call the one with the loop over steps
    loops: Mapping[Place, int]  # loops around the way in each function

    def once_an_epoch(self, frame: Frame) -> bool:
        """Return whether the statement at `frame`, in a function on the way, is outside the loop over steps."""
        place = (frame.file, frame.function)
        return place in self.outer or len(loops_around(frame.file, frame.line)) < self.loops.get(place, 0)


def assign_roles(run: Run) -> Run:
    """Return the Run with hand-made input, the loss and what comes once an epoch taken out of `host`."""
    if run.causes is None:
        return run
    spine = _spine(run.causes.lines)
    by_modules = any(model.name for model in run.models)
    parts = ["loss"] if by_modules and any(loader.is_training for loader in run.loaders) else ["lead", "loss"]
    if not run.optimizers:
        parts.append("tail")
    made = {"lead": Phase.INPUT if by_modules else Phase.FORWARD, "loss": Phase.FORWARD, "tail": Phase.OPTIMIZER}
    run = _without_preparation(run, spine)
    assert run.causes is not None
    asking = frozenset(loader.iterated_at for loader in run.loaders if loader.is_training and loader.iterated_at)
    lines = tuple(_assigned(cost, spine, {part: made[part] for part in parts}, asking) for cost in run.causes.lines)
    causes = dataclasses.replace(run.causes, lines=lines)
    shares = _shares(run.causes.lines, lines)
    if not shares:
        return run
    steps, gaps = run.steps, run.outside
    if shares.get(("lead", Phase.EPOCH_GAP), 0.0) > 0:
        steps, lumps = _without_lumps(steps)
        gaps = tuple(sorted((*gaps, *lumps), key=lambda stretch: stretch.start_ns))
    rest = 1 - shares.pop(("lead", Phase.EPOCH_GAP), 0.0)
    if rest > 0 and ("lead", made["lead"]) in shares:
        shares["lead", made["lead"]] = min(1.0, shares["lead", made["lead"]] / rest)
    if shares:
        steps = tuple(_moved(step, shares) for step in steps)
    return dataclasses.replace(run, steps=steps, outside=gaps, causes=causes)


def _spine(lines: tuple[LineCost, ...]) -> _Spine:
    backward = [cost for cost in lines if cost.process == "main" and cost.phase is Phase.BACKWARD]
    total = sum(cost.seconds for cost in backward)
    way: dict[Place, set[int]] = {}
    outer: set[Place] = set()
    inner: set[Place] = set()
    for cost in backward:
        if cost.seconds < _SPINE_SHARE * total:
            continue
        looped = False
        for frame in cost.stack:
            place = (frame.file, frame.function)
            way.setdefault(place, set()).add(frame.line)
            (outer if looped else inner).add(place)
            looped = looped or bool(loops_around(frame.file, frame.line))
    loops = {place: min(len(loops_around(place[0], line)) for line in places) for place, places in way.items()}
    return _Spine({place: frozenset(places) for place, places in way.items()}, frozenset(outer - inner), loops)


def _assigned(cost: LineCost, spine: _Spine, made: Mapping[str, Phase], asking: frozenset[Frame]) -> LineCost:
    if cost.process == "main" and cost.part == "lead" and cost.stack[:1] and cost.stack[0] in asking:
        return dataclasses.replace(cost, phase=Phase.INPUT, stage="handover")  # letting the batch before go
    if cost.process != "main" or cost.phase is not Phase.HOST or cost.part not in made:
        return cost
    role = _role(cost.stack, spine, cost.part, made[cost.part])
    if role is None:
        return cost
    return dataclasses.replace(cost, phase=role, stage="generator" if role is Phase.INPUT else "")


def _role(stack: tuple[Frame, ...], spine: _Spine, part: str, made: Phase) -> Phase | None:
    """Return what the time under `stack` is: `made` when the backward pass needs it, None when it stays host time."""
    if part == "tail":
        return made if any(reads_gradients(frame.file, frame.line) for frame in stack) else None
    aside = False  # frames further in have left the way
    for depth, frame in enumerate(stack):
        goals = spine.lines.get((frame.file, frame.function))
        if goals is None:
            aside = True
            continue
        if frame.line in goals and not aside:
            continue
        if part == "lead" and spine.once_an_epoch(frame):
            return Phase.EPOCH_GAP
        # on the way itself: an argument of the call that leads on, made further in
        on_the_way = frame.line in goals or feeds(frame.file, frame.line, goals)
        kept = made is Phase.INPUT or all(feeds_result(each.file, each.line) for each in stack[:depth])
        return made if on_the_way and kept else None
    return None


def _without_preparation(run: Run, spine: _Spine) -> Run:
    """Return the Run with validations that make what the next steps are trained on as time between epochs."""
    assert run.causes is not None
    lines = run.causes.lines
    seen = [cost for cost in lines if cost.process == "main" and cost.phase is Phase.VALIDATION]
    prepares = {id(cost) for cost in seen if _prepares(cost.stack, spine)}
    whole = sum(cost.seconds for cost in seen)
    if not prepares or sum(cost.seconds for cost in seen if id(cost) in prepares) < _NEARLY_ALL * whole:
        return run
    gap, checked = Phase.EPOCH_GAP, Phase.VALIDATION
    lines = tuple(dataclasses.replace(cost, phase=gap) if cost.phase is checked else cost for cost in lines)
    outside = tuple(dataclasses.replace(one, phase=gap) if one.phase is checked else one for one in run.outside)
    end = run.epoch_end
    if end is not None:
        end = dataclasses.replace(end, gap_s=end.gap_s + end.validation_s, validation_s=0.0)
    return dataclasses.replace(run, outside=outside, epoch_end=end, causes=dataclasses.replace(run.causes, lines=lines))


def _prepares(stack: tuple[Frame, ...], spine: _Spine) -> bool:
    """Return whether a statement outside the loop over steps makes what a statement of the loop needs."""
    for frame in stack:
        goals = spine.lines.get((frame.file, frame.function))
        if goals is not None:
            return spine.once_an_epoch(frame) and feeds(frame.file, frame.line, goals)
    return False


def _shares(before: tuple[LineCost, ...], after: tuple[LineCost, ...]) -> dict[tuple[str, Phase], float]:
    """Return what share of each part of host time was found to be which phase."""
    totals: dict[str, float] = {}
    moved: dict[tuple[str, Phase], float] = {}
    for old, new in zip(before, after, strict=True):
        if old.process == "main" and old.phase is Phase.HOST and old.part in _PART_INDEX:
            totals[old.part] = totals.get(old.part, 0.0) + old.seconds
            if new.phase is not Phase.HOST:
                moved[old.part, new.phase] = moved.get((old.part, new.phase), 0.0) + old.seconds
    return {key: seconds / totals[key[0]] for key, seconds in moved.items() if totals[key[0]] > 0}


def _without_lumps(steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], list[Outside]]:
    """Return the steps without what comes before few of them only, and that as stretches between epochs."""
    host = STEP_PHASES.index(Phase.HOST)
    usual = median(step.host_parts_ns[0] for step in steps)
    smaller, lumps = [], []
    for step in steps:
        lead, loss, tail = step.host_parts_ns
        if lead <= _LUMP * usual:
            smaller.append(step)
            continue
        extra = round(lead - usual)
        phases = tuple(ns - extra if index == host else ns for index, ns in enumerate(step.phases_ns))
        lumps.append(Outside(phase=Phase.EPOCH_GAP, start_ns=step.start_ns, wall_ns=extra))
        smaller.append(
            step._replace(
                start_ns=step.start_ns + extra,
                wall_ns=step.wall_ns - extra,
                phases_ns=phases,
                host_parts_ns=(lead - extra, loss, tail),
            )
        )
    return tuple(smaller), lumps


def _moved(step: Step, shares: Mapping[tuple[str, Phase], float]) -> Step:
    phases, host = list(step.phases_ns), list(step.host_parts_ns)
    for (part, phase), share in shares.items():
        amount = round(host[_PART_INDEX[part]] * share)
        host[_PART_INDEX[part]] -= amount
        phases[STEP_PHASES.index(Phase.HOST)] -= amount
        phases[STEP_PHASES.index(phase)] += amount
    return step._replace(phases_ns=tuple(phases), host_parts_ns=(host[0], host[1], host[2]))
