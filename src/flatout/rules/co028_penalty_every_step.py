"""A penalty on gradients is computed in every step, by a backward pass through a backward pass.

## What it measures

In two steps of the deep run, the backward passes with `create_graph=True`, and what later passes compute because of the
graph that these make. It fires at 15% of the step, where the code around the call names a penalty or a regularization,
and each step looked at has one.

## Why it matters

The gradient of a gradient costs two to three times as much as the pass that it is about, and needs a forward pass of
its own. It changes slowly: StyleGAN2 takes its R1 penalty every 16 steps and its path length penalty every 8, with the
weight multiplied by as much, and reports no loss of quality ("lazy regularization", Karras and others 2020).

## What to do

Compute it every k-th step, and multiply it by k: `if step % 8 == 0: loss = loss + 8 * penalty`. This changes the
training: compare the quality once. The promise is for every 8th step. `flatout tune --also CO028` tries that where a
function gives back the penalty and is called at one place.

## When it is wrong

Where the gradient is what the model is for (forces from energies, residuals of an equation), each step needs it; code
that names no penalty is not reported. It is no fault: it stands last among the findings, and a script with nothing else
is healthy.
"""

import ast
import re

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.backward_time import inside, share_of_lines, share_of_nodes, timed_nodes
from flatout.rules.source.source_code import enclosing_function, statement
from flatout.schema.backward import BackwardCall, BackwardFacts
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run

MIN_SHARE = 0.15
EVERY = 8
PENALTY = re.compile(
    r"penal|(^|_)gp(_|$)|(^|_)r[12](_|$)|regulari|(^|_)reg(_|$)|lipschitz|smoothness|path_length", re.IGNORECASE
)


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO028: 15% of the step is a penalty on gradients."""
    found = timed_nodes(run)
    calls = [each for each in (found.calls if found else ()) if each.creates_graph and each.passes >= 1]
    calls = [each for each in calls if each.place is not None and _penalizes(each.place)]
    if found is None or not calls:
        return None
    worst = max(calls, key=lambda each: each.seconds + each.doubled_s)
    share = share_of_nodes(found, breakdown, worst.doubled_s) + _making(run, breakdown, found, worst)
    if share < MIN_SHARE:
        return None
    return Finding(
        code="CO028",
        name="penalty-every-step",
        phase=Phase.BACKWARD,
        share=min(1.0, share),
        max_speedup=speedup_without(share * (1 - 1 / EVERY)),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is a penalty on gradients, from {at(worst.place)}: a "
        "forward pass, its backward pass and the way back through both. It changes slowly: computed every "
        f"{EVERY}th step and multiplied by {EVERY}, most of it goes. This changes the training, and "
        "methods such as WGAN-GP ask for it: compare the quality.",
        evidence=(
            Evidence("the pass that makes a graph", worst.seconds * 1000, "ms"),
            Evidence("what later passes compute for it", worst.doubled_s * 1000, "ms"),
            Evidence("steps looked at", found.steps, ""),
        ),
        fixes=(),
        optional=True,
    )


def _making(run: Run, breakdown: Breakdown, found: BackwardFacts, call: BackwardCall) -> float:
    """Return the share of the step that the penalty's own forward pass and its gradient take."""
    nodes = share_of_nodes(found, breakdown, call.seconds)
    if call.place is None or any(each.place != call.place and _same_function(each, call) for each in found.calls):
        return 2 * nodes  # of a function that does more: the forward pass is taken to be as long
    phases = (Phase.HOST, Phase.FORWARD, Phase.BACKWARD)
    sampled = (share_of_lines(run, breakdown, inside(run, call.place, phase), phase) for phase in phases)
    return sum(sampled) or 2 * nodes


def _same_function(one: BackwardCall, other: BackwardCall) -> bool:
    places = one.place, other.place
    return None not in places and len({(each.file, each.function) for each in places if each}) == 1


def _penalizes(place: Frame) -> bool:
    """Return whether the function around the call, or a name that it assigns, is that of a penalty."""
    if PENALTY.search(place.function.rpartition(".")[2]):
        return True
    function = enclosing_function(place)
    if function is None:
        return bool(PENALTY.search(statement(place) or ""))
    names = (node.id for node in ast.walk(function) if isinstance(node, ast.Name))
    return any(PENALTY.search(name) for name in names)


def _with(doubled_s: float, function: str = "gradient_penalty", passes: float = 1.0) -> Causes:
    place = Frame("train.py", 30, function)
    made = BackwardCall(place=place, passes=passes, seconds=0.005, creates_graph=True, doubled_s=doubled_s)
    whole = BackwardCall(place=Frame("train.py", 50, "train"), passes=1.0, seconds=0.03)
    return Causes(num_steps=60, backward=BackwardFacts(steps=2, seconds=0.03, calls=(whole, made)))


RULE = Rule(
    code="CO028",
    name="penalty-every-step",
    check=check,
    fires_on=(
        example(step_ms=60, forward=10, backward=35, causes=_with(0.015)),
        example(step_ms=60, forward=10, backward=35, causes=_with(0.005, "Trainer.r1")),
    ),
    quiet_on=(
        example(step_ms=60, forward=10, backward=35, causes=_with(0.015, "forces")),
        example(step_ms=60, forward=10, backward=35, causes=_with(0.015, passes=0.5)),
        example(step_ms=600, forward=10, backward=35, causes=_with(0.015)),
        example(step_ms=60, forward=10, backward=35, causes=Causes(num_steps=60)),
    ),
    edits=(("seldom-penalty",),),
)
