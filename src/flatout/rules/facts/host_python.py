"""Which part of the sampled host time is Python work in the loop, and not computation that torch must do."""

import ast
import re

from flatout.rules.facts.manual_loading import in_host_time
from flatout.rules.facts.output_calls import writes_output
from flatout.rules.facts.user_lines import costs, outer_lines
from flatout.rules.source.loops import in_loop
from flatout.rules.source.source_code import enclosing_function, named_in_calls
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["OURS", "hook_work", "python_work", "writing"]

OURS = "flatout"  # probes of a deep run, which runs with more of them than a timed one

TORCH = frozenset({"torch", "torchvision", "torchaudio", "functorch"})
REGISTERS = re.compile(r"register_.*hook")
WATCHES = frozenset({"detach", "data", "no_grad", "inference_mode", "item", "tolist", "numpy"})


def writing(run: Run) -> tuple[LineCost, ...]:
    """Return the host time in printing, logging, drawing and writing files."""
    return costs(run, Phase.HOST, keep=writes_output)


def python_work(run: Run) -> tuple[LineCost, ...]:
    """Return the host time in the user's own functions that neither write nor only call torch once.

    Time directly below the call of a loop (`trainer.fit`) belongs to a framework's loop, not to the user's code. Time
    of the line that iterates a loader is spent releasing the previous batch, and with it memory shared with workers.
    """
    making_batches = set(in_host_time(run))
    walks = {(loader.iterated_at.file, loader.iterated_at.line) for loader in run.loaders if loader.iterated_at}
    outer = outer_lines(run)
    return costs(
        run,
        Phase.HOST,
        keep=lambda cost: (
            cost not in making_batches
            and cost.leaf != OURS
            and not outer.intersection(cost.stack[:1])
            and not (cost.leaf == "" and walks.intersection((at.file, at.line) for at in cost.stack[:1]))
            and not writes_output(cost)
            and _is_python_work(cost)
        ),
    )


def hook_work(run: Run) -> tuple[LineCost, ...]:
    """Return the forward time in hooks of the script that only watch: their values lead to no gradient."""
    return costs(run, Phase.FORWARD, keep=lambda cost: any(map(_is_watching_hook, cost.stack)))


def _is_watching_hook(frame: Frame) -> bool:
    names = named_in_calls(frame.file, REGISTERS)
    if names.isdisjoint(frame.function.split(".")):
        return False
    function = enclosing_function(frame)
    nodes = ast.walk(function) if function is not None else ()
    return any(isinstance(node, ast.Attribute) and node.attr in WATCHES for node in nodes)


def _is_python_work(cost: LineCost) -> bool:
    """Return whether a line does work in Python.

    A torch operation has no Python frame of its own below the user's line: between the forward and the backward pass a
    line of user code is most likely the loss, unless it stands in a loop.
    """
    if not cost.stack:
        return False
    if cost.leaf in TORCH or (cost.leaf == "" and cost.part == "loss"):
        return any(in_loop(frame) for frame in cost.stack)
    return True
