"""The forward pass runs a Python loop over the data or over small modules, or computes outside torch.

## What it measures

In which lines of the model's and the loss's own code the forward pass spends its time. It fires when the forward pass
is at least 15% of the step and a quarter of it is inside one Python loop over time steps, rows, pixels or members of an
ensemble (read from the source), or in numpy or another Python library that neither imports torch nor is known to be
built on it.

Other loops count (tables, heads, experts) where one step made at least six turns, no turn reads what an earlier one has
made but to add to it, and doing all at once would save 8% of the step. So do solvers: at least 20 turns, by a number
that is no size of the data, each going on with the result of the one before, and 60% of the forward pass.

## Why it matters

Each iteration of such a loop launches its own small operations, forward and backward: tens of microseconds each for
arithmetic that takes one. One operation over the whole tensor does the same in a single launch.

For a library the bound is its own time. For a loop the gain is an estimate: 65% of the loop's forward and backward time
is taken for launch overhead, the rest for matrix products that stay. A loop without matrix products, which only
selects, sums or stacks, counts in full.

Of a loop whose turns were counted, the work is measured: in one forward pass, what each operation takes beyond the same
operation on next to nothing. The rest is what one operation saves, and the optimizer's time for each parameter but one.
Of a solver's steps half are counted as gain: whether fewer are enough is not measured.

## What to do

Replace the loop by one operation on the whole tensor (a matrix product, `cumsum`, `conv1d`, `gather`, `nn.LSTM`
instead of `nn.LSTMCell`); do what numpy does in torch, or before the model. Many small tables are one table with
offsets; many small layers of one shape are one `torch.baddbmm` of stacked weights. A solver with a method of higher
order takes larger steps; an iteration can end where its result no longer changes; `torch.compile` makes turns shorter.

## When it is wrong

A recurrence in which each state needs the previous one cannot always be written as one operation; `torch.compile` may
still help. Loops over layers or scales, where each turn takes what the one before has made, are how models are written,
and are not reported.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.host_python import TORCH
from flatout.rules.facts.user_lines import Hotspot, costs, hottest, seconds
from flatout.rules.source.invariant_lines import is_invariant
from flatout.rules.source.loop_turns import counted_loops, makes_few_turns
from flatout.rules.source.loops import data_loop, in_loop, loops_around, may_multiply
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, LineOperations, Run
from flatout.units import format_share

MADE_OF_TORCH = TORCH | {  # an operation of torch has no frame of its own: it is seen in who called it
    "accelerate", "allennlp", "apex", "botorch", "deepspeed", "detectron2", "dgl", "diffusers", "e3nn", "einops",
    "espnet", "fairscale", "fairseq", "fastai", "flash_attn", "gpytorch", "kornia", "lightning", "lightning_fabric",
    "linear_operator", "mamba_ssm", "mmcv", "mmengine", "monai", "nemo", "opacus", "open_clip", "peft", "pyro",
    "pytorch_lightning", "pytorch_metric_learning", "segmentation_models_pytorch", "sentence_transformers",
    "skorch", "speechbrain", "tensordict", "timm", "torch_geometric", "torch_scatter", "torch_sparse", "torchao",
    "torchdiffeq", "torchmetrics", "torchrl", "torchtext", "torchtune", "transformers", "transformers_modules",
    "ultralytics", "xformers",
}  # fmt: skip
TOKENIZES = re.compile("tokeniz|encode_plus")  # what such a library does besides, before any tensor is there
MIN_SHARE = 0.15
MIN_FRACTION = 0.25
MIN_GAIN = 0.08  # of the step, by a loop that was counted
MIN_STEPS, MIN_REFINING = 20, 0.60  # turns of a solver, and their part of the forward pass
SPARED = 0.5  # of its turns
MIN_AGAIN = 0.3  # of a loop, that is the same in each turn
OVERHEAD = 0.65  # of a loop of small operations; the rest are products that one large operation does too
UPDATE = {"SGD": 6, "Adam": 34, "AdamW": 34, "": 20}  # what an optimizer does to a tensor, in short operations


@dataclass(frozen=True, slots=True)
class _Again:
    """A line of a loop that computes the same in each turn, and what it takes in the deep run."""

    place: Frame
    turns: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Suspect:
    """What a part of the forward pass is: a loop that begins at a line, or, without a line, a library."""

    name: str
    line: int = 0
    turns: int = 0  # counted; 0 for a loop that is known from the source to run over the data
    refines: bool = False  # each turn goes on with what the one before has made; their number is a choice


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO004: a quarter of a forward pass that matters is one Python loop, or not torch at all."""
    forward = breakdown.share(Phase.FORWARD)
    lines = costs(run, Phase.FORWARD)
    groups = _suspicious(run, lines)
    if forward < MIN_SHARE or not groups:
        return None
    kind, worst = max(groups.items(), key=lambda group: seconds(group[1]))
    fraction = min(1.0, seconds(worst) / seconds(lines)) if seconds(lines) > 0 else 0.0
    spot = hottest(worst, among=lines)
    if spot is None or fraction < MIN_FRACTION:
        return None
    share, again = forward * fraction, _computed_again(run, kind, worst)
    gone = _gone(run, breakdown, kind, worst, fraction)
    if again is not None:
        both = forward + breakdown.share(Phase.BACKWARD)
        gone = both * fraction * again.seconds / seconds(worst) * (1 - 1 / again.turns)
    if (kind.turns and gone < MIN_GAIN) or (kind.refines and fraction < MIN_REFINING):
        return None
    return Finding(
        code="CO004",
        name="python-in-forward",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(gone),
        bound_by="the loop's backward pass goes with it" if gone > share else "matrix products in the loop stay",
        location=_place(kind, worst, spot, again),
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to {_what(kind, spot)}: "
        f"{format_share(fraction)} of the forward pass ({spot.samples} stack samples). "
        f"{_instead(run, kind, worst, again)}",
        evidence=(
            Evidence("share of the forward pass", fraction, ""),
            Evidence("cost in each forward pass", share * breakdown.mean_ms, "ms"),
            Evidence("stack samples", spot.samples, ""),
        ),
        fixes=("compiled-python",),
    )


def _gone(run: Run, breakdown: Breakdown, kind: _Suspect, worst: Sequence[LineCost], fraction: float) -> float:
    """Return which share of the step one operation, or torch in place of a library, would save."""
    forward = breakdown.share(Phase.FORWARD)
    if not kind.line:  # a library that is not torch: it has no backward pass
        return forward * fraction
    loop_s = fraction * breakdown.ms(Phase.FORWARD) / 1e3
    gone = (forward + breakdown.share(Phase.BACKWARD)) * fraction * _overhead(run, kind, worst, loop_s)
    return gone + min(breakdown.share(Phase.OPTIMIZER), _updates_s(run, kind, worst) / breakdown.mean_ms * 1e3)


def _computed_again(run: Run, kind: _Suspect, worst: Sequence[LineCost]) -> _Again | None:
    """Return the line of a loop that computes the same in each turn, where that is much of what the loop takes."""
    by_line: dict[Frame, float] = defaultdict(float)
    for cost in worst if kind.line else ():
        for frame in cost.stack:
            if frame.file == kind.name and frame.line >= kind.line:
                by_line[frame] += cost.seconds
    found = []
    for frame, taken in by_line.items():
        turns = next((loop.turns for loop in counted_loops(run, frame, least=2)), 0)
        around = next(iter(loops_around(frame)), None)
        if turns > 1 and around is not None and is_invariant(around, frame.line):
            found.append(_Again(frame, turns, taken))
    most = max(found, key=lambda again: again.seconds, default=None)
    return most if most is not None and most.seconds >= MIN_AGAIN * seconds(worst) else None


def _overhead(run: Run, kind: _Suspect, worst: Sequence[LineCost], loop_s: float) -> float:
    """Return how much of a loop's time goes when one operation does what all of its turns do."""
    if not kind.turns:
        return OVERHEAD if any(may_multiply(frame, kind.line) for frame in _in(kind, worst)) else 1.0
    if kind.refines:
        return SPARED
    work_s = sum(one.seconds - one.floor_s for one in _operations(run, worst))
    return max(0.0, 1 - work_s / loop_s) * (1 - 1 / kind.turns) if loop_s > 0 else 0.0


def _updates_s(run: Run, kind: _Suspect, worst: Sequence[LineCost]) -> float:
    """Return the seconds that an optimizer saves which updates the parameters of all turns as one, in a step."""
    if not kind.turns or kind.refines or not any(optimizer.implementation == "loop" for optimizer in run.optimizers):
        return 0.0
    called = _operations(run, worst)
    operations = max(UPDATE.get(optimizer.name, UPDATE[""]) for optimizer in run.optimizers)
    return sum(one.parameters * one.update_s for one in called) * operations * (1 - 1 / kind.turns)


def _operations(run: Run, worst: Sequence[LineCost]) -> list[LineOperations]:
    """Return the operations that were called from the innermost lines of a loop."""
    innermost = {(cost.stack[0].file, cost.stack[0].line) for cost in worst if cost.stack}
    called = run.causes.line_operations if run.causes else ()
    return [one for one in called if (one.place.file, one.place.line) in innermost]


def _in(kind: _Suspect, lines: Sequence[LineCost]) -> set[Frame]:
    """Return the frames that stand in the loop."""
    frames = {frame for cost in lines for frame in cost.stack if frame.file == kind.name}
    return {frame for frame in frames if data_loop(frame) == kind.line}


def _place(kind: _Suspect, worst: Sequence[LineCost], spot: Hotspot, again: _Again | None) -> Frame | None:
    """Return the line to be named."""
    if again is not None:
        return again.place
    return _loop(kind, worst) if kind.turns else spot.place


def _loop(kind: _Suspect, worst: Sequence[LineCost]) -> Frame | None:
    """Return the line that a loop begins at."""
    inside = (frame for cost in worst for frame in cost.stack if frame.file == kind.name)
    functions = (frame.function.partition(".<locals>.<")[0] for frame in inside if frame.line >= kind.line)
    return Frame(kind.name, kind.line, next(functions, ""))


def _what(kind: _Suspect, spot: Hotspot) -> str:
    if not kind.line:
        return f"{kind.name}, called from {within(spot)}"
    depends = "follow one another" if kind.refines else "do not depend on each other"
    turns = f"whose {kind.turns} turns {depends}, " if kind.turns else ""
    return f"the Python loop that begins at line {kind.line}, {turns}mostly in {within(spot)}"


def _instead(run: Run, kind: _Suspect, worst: Sequence[LineCost], again: _Again | None) -> str:
    if again is not None:
        return f"Line {again.place.line} computes the same in each of {again.turns} turns: do it once, before the loop."
    if not kind.turns:
        return "Use one torch operation on the whole tensor."
    if kind.refines:
        return "Make fewer steps that are worth more, or end where nothing changes: half of them are counted as gain."
    kinds = {one.kinds[0] for one in _operations(run, worst) if one.kinds}
    if kinds & {"embedding", "embedding_bag"}:
        return "Put the tables into one, and look all rows up at once: `table(indices + offsets)`."
    if kinds & {"addmm", "mm", "bmm", "baddbmm"}:
        return "Stack the weights, and multiply once: `torch.baddbmm(biases, inputs, weights)`."
    return "Use one torch operation for all turns."


def _suspicious(run: Run, lines: tuple[LineCost, ...]) -> dict[_Suspect, list[LineCost]]:
    """Group the lines of a forward pass by the loop they stand in, or by the library that is not torch."""
    groups: dict[_Suspect, list[LineCost]] = defaultdict(list)
    for cost in lines:
        inside = _inside_the_model(cost)
        outermost = next(_data_loops(run, inside), None)
        if outermost is not None:
            groups[_Suspect(*outermost)].append(cost)
        elif (counted := _counted(run, inside) or _around_the_model(run, cost)) is not None:
            groups[counted].append(cost)
        elif (cost.part == "loss" or (inside and cost.part != "lead")) and _leaves_torch(cost):
            groups[_Suspect(cost.leaf)].append(cost)
    return groups


def _data_loops(run: Run, frames: Sequence[Frame]) -> Iterator[tuple[str, int]]:
    """Yield file and line of loops over the data, the outermost first; of those counted, that make many turns."""
    for frame in reversed(frames):
        begins = data_loop(frame)
        if begins is not None and not makes_few_turns(run, frame, begins):
            yield frame.file, begins


def _around_the_model(run: Run, cost: LineCost) -> _Suspect | None:
    """Return the loop that calls the model many times in a step: turn by turn of a sequence, or row by row."""
    forwards = [at for at, frame in enumerate(cost.stack) if frame.function.rpartition(".")[2] == "forward"]
    callers = cost.stack[: forwards[-1] : -1] if forwards else ()
    loops = [(frame, loop) for frame in callers for loop in reversed(list(counted_loops(run, frame)))]
    for frame, loop in loops:
        if loop.independent:
            return _Suspect(frame.file, loop.line, loop.turns)
    for frame, loop in loops:
        if data_loop(frame) == loop.line:
            return _Suspect(frame.file, loop.line)
    return None


def _counted(run: Run, inside: Sequence[Frame]) -> _Suspect | None:
    """Return the outermost loop whose turns do not depend on each other, or that makes many small steps."""
    for frame in reversed(inside):
        for loop in reversed(list(counted_loops(run, frame))):
            if loop.independent or (loop.refines and loop.turns >= MIN_STEPS):
                return _Suspect(frame.file, loop.line, loop.turns, loop.refines)
    return None


def _leaves_torch(cost: LineCost) -> bool:
    """Return whether a library computes that is not made of torch, as far as that is known, or text is cut up."""
    of_torch = cost.leaf_uses_torch or cost.leaf in MADE_OF_TORCH
    return bool(cost.leaf) and (not of_torch or TOKENIZES.search(cost.leaf_function) is not None)


def _inside_the_model(cost: LineCost) -> tuple[Frame, ...]:
    """Return the frames from the innermost to the outermost `forward`: what called the model is not part of it.

    Computing the loss counts as forward time, too, and so does a forward pass that is written in plain functions: there
    all frames count that stand in a loop inside the step.
    """
    if cost.part in ("loss", "lead"):
        return tuple(frame for frame in cost.stack if in_loop(frame))
    forwards = [i for i, frame in enumerate(cost.stack) if frame.function.rpartition(".")[2] == "forward"]
    return cost.stack[: forwards[-1] + 1] if forwards else ()


_TRAIN = ("train.py", 44, "train")
_FORWARD = ("model.py", 20, "Net.forward")


def _forward(seconds_: float, leaf: str) -> LineCost:
    return line(seconds_, _FORWARD, _TRAIN, phase=Phase.FORWARD, leaf=leaf, leaf_function="run")


RULE = Rule(
    code="CO004",
    name="python-in-forward",
    check=check,
    after=("unchanging-work",),
    edits=(("element-writes",), ("list-lookups",)),
    fires_on=(
        example(step_ms=100, forward=50, backward=40, lines=(_forward(1.0, "numpy"), _forward(1.0, "torch"))),
        example(step_ms=100, forward=16, backward=20, lines=(_forward(1.0, "scipy"), _forward(2.0, "torch"))),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, backward=40, lines=(_forward(0.3, "numpy"), _forward(1.0, "torch"))),
        example(step_ms=100, forward=14, backward=40, lines=(_forward(1.0, "numpy"),)),
        example(step_ms=100, forward=50, backward=40, lines=(_forward(1.0, "torch"), _forward(1.0, ""))),
    ),
)
