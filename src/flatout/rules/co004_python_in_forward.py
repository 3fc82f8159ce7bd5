"""The forward pass runs a Python loop over the data, or computes outside torch.

## What it measures

In which lines of the model's and the loss's own code the forward pass spends its time. It fires when the forward pass
is at least 15% of the step and a quarter of it is inside one Python loop over time steps, rows, pixels or members of an
ensemble (read from the source), or in numpy or another Python library that neither imports torch nor is known to be
built on it.

## Why it matters

Each iteration of such a loop launches its own small operations, forward and backward: tens of microseconds each for
arithmetic that takes one. One operation over the whole tensor does the same in a single launch.

For a library the bound is its own time. For a loop the gain is an estimate: 65% of the loop's forward and backward time
is taken for launch overhead, the rest for matrix products that stay. A loop without matrix products, which only
selects, sums or stacks, counts in full. The overhead was 56%, 68% and 69% for three of the scripts below; for two that
select and stack, more than the whole loop was saved. Counting the whole loop would promise 12x where rewriting a
recurrence gave 1.9x (n=1, one thread).

## What to do

Replace the loop by one operation on the whole tensor (a matrix product, `cumsum`, `conv1d`, `gather`, `nn.LSTM`
instead of `nn.LSTMCell`); do what numpy does in torch, or before the model.

## When it is wrong

A recurrence in which each state needs the previous one cannot always be written as one operation; `torch.compile` may
still help. Loops over layers, heads or scales are how models are written, and are not reported.
"""

import re
from collections import defaultdict

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.host_python import TORCH
from flatout.rules.facts.loops import data_loop, in_loop, may_multiply
from flatout.rules.facts.user_lines import Hotspot, costs, hottest, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run
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
OVERHEAD = 0.65  # of a loop of small operations; the rest are products that one large operation does too


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO004: a quarter of a forward pass that matters is one Python loop, or not torch at all."""
    forward = breakdown.share(Phase.FORWARD)
    lines = costs(run, Phase.FORWARD)
    groups = _suspicious(lines)
    if forward < MIN_SHARE or not groups:
        return None
    kind, worst = max(groups.items(), key=lambda group: seconds(group[1]))
    fraction = min(1.0, seconds(worst) / seconds(lines)) if seconds(lines) > 0 else 0.0
    spot = hottest(worst, among=lines)
    if spot is None or fraction < MIN_FRACTION:
        return None
    share = forward * fraction
    gone = share  # of a library that is not torch: it has no backward pass
    if kind[1]:
        overhead = OVERHEAD if any(may_multiply(frame, kind[1]) for frame in _in(kind, worst)) else 1.0
        gone = (forward + breakdown.share(Phase.BACKWARD)) * fraction * overhead
    return Finding(
        code="CO004",
        name="python-in-forward",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(gone),
        bound_by="the loop's backward pass goes with it" if gone > share else "matrix products in the loop stay",
        location=spot.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to {_what(kind, spot)}: "
        f"{format_share(fraction)} of the forward pass ({spot.samples} stack samples). Use one torch "
        "operation on the whole tensor.",
        evidence=(
            Evidence("share of the forward pass", fraction, ""),
            Evidence("cost in each forward pass", share * breakdown.mean_ms, "ms"),
            Evidence("stack samples", spot.samples, ""),
        ),
        fixes=(),
    )


def _in(kind: tuple[str, int], lines: list[LineCost]) -> set[Frame]:
    """Return the frames that stand in the loop."""
    return {frame for cost in lines for frame in cost.stack if frame.file == kind[0] and data_loop(frame) == kind[1]}


def _what(kind: tuple[str, int], spot: Hotspot) -> str:
    name, line_number = kind
    if line_number == 0:
        return f"{name}, called from {at(spot.place)}"
    return f"the Python loop that begins at line {line_number}, mostly in {at(spot.place)}"


def _suspicious(lines: tuple[LineCost, ...]) -> dict[tuple[str, int], list[LineCost]]:
    """Group the lines of a forward pass by the loop over data they stand in, or by the library that is not torch."""
    groups: dict[tuple[str, int], list[LineCost]] = defaultdict(list)
    for cost in lines:
        inside = _inside_the_model(cost)
        loops = ((frame.file, begins) for frame in reversed(inside) if (begins := data_loop(frame)) is not None)
        outermost = next(loops, None)
        if outermost is not None:
            groups[outermost].append(cost)
        elif (cost.part == "loss" or (inside and cost.part != "lead")) and _leaves_torch(cost):
            groups[cost.leaf, 0].append(cost)
    return groups


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
