"""Which of the sampled lines make batches in the script itself, without a `DataLoader`."""

import ast
import re
from collections import defaultdict

from flatout.rules.facts.behind_step import behind_step
from flatout.rules.facts.loader_facts import gave_batches
from flatout.rules.facts.user_lines import COMPILED, costs, function_key, seconds
from flatout.rules.source.environments import acts, steps_at
from flatout.rules.source.source_code import Function, ancestors, enclosing_function, statement
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["batch_making", "fed_by_torch", "in_forward_time", "in_host_time", "plays_most"]

MOSTLY = 0.5
OUTSIDE_TORCH = 0.5  # of the time below a function that makes batches: spent in libraries that do not use torch
CALLS_LIBRARIES = re.compile(r"\b(np|numpy|pd|pandas|pl|polars|scipy|math|random|cv2|PIL|json)\.")
MAKES_TENSORS = re.compile(r"\btorch\.(from_numpy|as_tensor|tensor|frombuffer)\(")
MAKES_BATCHES = re.compile(r"batch|__next__|__iter__")
NO_MAKERS = re.compile(
    r"train|fit|main|epoch|step|^_?(on|after|before|log|report|score|evaluate)_|_(end|begin|start|hook)$"
)


def fed_by_torch(run: Run) -> bool:
    """Return whether the training batches came from a `DataLoader`."""
    return any(gave_batches(loader) for loader in run.loaders if loader.is_training)


def batch_making(run: Run) -> tuple[LineCost, ...]:
    """Return what the recording itself attributed to a batch generator of the script.

    A compiled model hides where its forward pass begins, so time inside it is excluded; so is acting in an environment,
    and what the loop does behind the optimizer's step.
    """
    made = costs(run, Phase.INPUT, stages=("generator",), keep=lambda cost: not (_in_model(cost) or _acts(cost)))
    behind = set(behind_step(run, made))
    return tuple(cost for cost in made if cost not in behind)


def plays_most(run: Run) -> bool:
    """Return whether most of the time before batches goes to functions that act in an environment."""
    seen = costs(run, Phase.INPUT)
    return seconds(filter(_acts, seen)) > MOSTLY * seconds(seen)


def _acts(cost: LineCost) -> bool:
    """Return whether a line steps an environment, is below one that does, or stands in a function with such a line.

    What the function around calls besides, a replay buffer for instance, makes batches.
    """
    return any(steps_at(frame) for frame in cost.stack) or (bool(cost.stack) and acts(cost.stack[0]))


def in_host_time(run: Run) -> tuple[LineCost, ...]:
    """Return batch making that was counted as host time, because nothing marked where a batch begins.

    Only time before the forward pass counts, only without a `DataLoader`, and only inside generators, iterators and
    functions that are named for it; a metric that the loop calls behind the step is none.
    """
    if fed_by_torch(run):
        return ()
    lead = costs(run, Phase.HOST, keep=lambda cost: cost.part == "lead" and not _acts(cost))
    making = tuple(cost for cost in lead if any(map(_makes_batches, cost.stack)))
    behind = set(behind_step(run, making))
    return tuple(cost for cost in making if cost not in behind)


def in_forward_time(run: Run) -> tuple[LineCost, ...]:
    """Return batch making that was counted as forward time, because no module marks where the forward pass begins.

    It is what the script does before the loss in functions, or statements of the loop, whose time is mostly spent in
    numpy, pandas and the like: gradients do not pass through these.
    """
    if fed_by_torch(run) or any(model.name for model in run.models):
        return ()
    training = {function_key(frame) for cost in costs(run, Phase.BACKWARD) for frame in cost.stack}
    groups: dict[object, list[LineCost]] = defaultdict(list)
    for cost in costs(run, Phase.FORWARD, keep=lambda cost: cost.part == "lead" and bool(cost.stack)):
        called = next((key for key in map(function_key, reversed(cost.stack)) if key not in training), None)
        groups[called or cost.stack[0]].append(cost)
    return tuple(cost for group in groups.values() if _outside_torch(group) for cost in group)


def _outside_torch(group: list[LineCost]) -> bool:
    return seconds(filter(_is_outside_torch, group)) >= OUTSIDE_TORCH * seconds(group)


def _is_outside_torch(cost: LineCost) -> bool:
    """Return whether a library without torch runs; functions in C have no frame, so the statement has to tell."""
    if cost.leaf:
        return cost.leaf != "torch" and not cost.leaf_uses_torch
    text = statement(cost.stack[0]) or ""
    return MAKES_TENSORS.search(text) is not None or (CALLS_LIBRARIES.search(text) is not None and "torch." not in text)


def _in_model(cost: LineCost) -> bool:
    forward = any(frame.function.rpartition(".")[2] == "forward" for frame in cost.stack)
    return forward or cost.leaf_function == COMPILED


def _makes_batches(frame: Frame) -> bool:
    name = frame.function.rpartition(".")[2]
    if MAKES_BATCHES.search(name):
        return not NO_MAKERS.search(name)
    definition = enclosing_function(frame)
    return definition is not None and _yields(definition, frame)


def _yields(definition: Function, frame: Frame) -> bool:
    """Return whether a function is a generator: a `yield` is its own, not that of a nested function."""
    yields = (node for node in ast.walk(definition) if isinstance(node, ast.Yield | ast.YieldFrom))
    return any(
        next((n for n in ancestors(Frame(frame.file, node.lineno, "")) if isinstance(n, Function)), None) is definition
        for node in yields
    )
