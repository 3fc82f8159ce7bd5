"""Whose work the host's time is: input made by hand, the loss, or the rest of the loop.

The probes see exactly when the host works before, between and after the forward and backward passes, not why. The
deep run's lines say why: a statement that makes what the backward pass needs is input when it runs before the forward
pass (in a script that trains from no DataLoader), and part of the forward pass when it runs after it.
"""

import dataclasses
from collections.abc import Mapping

from flatout.analysis.dataflow import feeds
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Frame, LineCost, Run, Step

__all__ = ["assign_roles"]

_PART_INDEX = {"lead": 0, "loss": 1}
_PART_PHASE = {"lead": Phase.INPUT, "loss": Phase.FORWARD}
_SPINE_SHARE = 0.05  # backward stacks below this share of the backward time do not count

Spine = Mapping[tuple[str, str], frozenset[int]]


def assign_roles(run: Run) -> Run:
    """Return the Run with hand-made input and the loss taken out of `host`, in its lines and in its steps."""
    if run.causes is None:
        return run
    spine = _spine(run.causes.lines)
    parts = ("loss",) if any(loader.is_training for loader in run.loaders) else ("lead", "loss")
    lines = tuple(_assigned(cost, spine, parts) for cost in run.causes.lines)
    shares = {part: _moved_share(run.causes.lines, lines, part) for part in parts}
    if not any(shares.values()):
        return run
    steps = tuple(_moved(step, shares) for step in run.steps)
    return dataclasses.replace(run, steps=steps, causes=dataclasses.replace(run.causes, lines=lines))


def _spine(lines: tuple[LineCost, ...]) -> Spine:
    """Return, for each function on the way to `backward()`, its lines on that way."""
    backward = [cost for cost in lines if cost.process == "main" and cost.phase is Phase.BACKWARD]
    total = sum(cost.seconds for cost in backward)
    spine: dict[tuple[str, str], set[int]] = {}
    for cost in backward:
        if cost.seconds >= _SPINE_SHARE * total:
            for frame in cost.stack:
                spine.setdefault((frame.file, frame.function), set()).add(frame.line)
    return {key: frozenset(places) for key, places in spine.items()}


def _assigned(cost: LineCost, spine: Spine, parts: tuple[str, ...]) -> LineCost:
    if cost.process != "main" or cost.phase is not Phase.HOST or cost.part not in parts:
        return cost
    if not _leads_to_backward(cost.stack, spine):
        return cost
    stage = "generator" if cost.part == "lead" else ""
    return dataclasses.replace(cost, phase=_PART_PHASE[cost.part], stage=stage)


def _leads_to_backward(stack: tuple[Frame, ...], spine: Spine) -> bool:
    aside = False  # frames further in have left the way
    for frame in stack:
        goals = spine.get((frame.file, frame.function))
        if goals is None:
            aside = True
        elif frame.line not in goals:
            return feeds(frame.file, frame.line, goals)
        elif aside:  # an argument of the call that leads on, made further in
            return True
    return False


def _moved_share(before: tuple[LineCost, ...], after: tuple[LineCost, ...], part: str) -> float:
    total = moved = 0.0
    for old, new in zip(before, after, strict=True):
        if old.process == "main" and old.phase is Phase.HOST and old.part == part:
            total += old.seconds
            moved += old.seconds if new.phase is not Phase.HOST else 0.0
    return moved / total if total > 0 else 0.0


def _moved(step: Step, shares: Mapping[str, float]) -> Step:
    phases, host = list(step.phases_ns), list(step.host_parts_ns)
    for part, share in shares.items():
        amount = round(host[_PART_INDEX[part]] * share)
        host[_PART_INDEX[part]] -= amount
        phases[STEP_PHASES.index(Phase.HOST)] -= amount
        phases[STEP_PHASES.index(_PART_PHASE[part])] += amount
    return step._replace(phases_ns=tuple(phases), host_parts_ns=(host[0], host[1], host[2]))
