"""A line that is cheap in the forward pass has a backward pass that dominates the step.

## What it measures

In two steps of the deep run, the time of the nodes of the backward pass, by the line of the forward pass that made
them, and against it what the line sampler sees of that line in the forward pass. It fires where the backward pass of
one line takes five times as long as the line itself, and 40% of the step, and its node is of a kind that has a cheaper
form: of a convolution or a product it says nothing. Where eight parts or more are cut out of a
tensor, or written or added to one, these nodes alone count, from 15% of the step on.

## Why it matters

Some operations read a part of a tensor, and give back a gradient as large as the whole: each `x[:, t]` fills a tensor
of zeros, each write into a slice copies the gradient of it all: a loop over `T` steps moves `T` times the data.
Others have a gradient that is added up element by element (an index that repeats), or by a formula of its own
(`cumprod`). Profiles name the node, and not the line that made it.

The bound is what the backward pass of the line takes beyond twice its forward pass, as operations have it elsewhere;
all of it for parts that are cut out or written one by one.

## What to do

Write the forward line in the form that the message names. `flatout tune` tries `unbind` before a loop over `x[:, t]`,
`index_select` for `x[rows]` (negative rows are counted from the end, as before), and a list for a tensor that
`torch.cat` lets grow.

## When it is wrong

A reduction or a look-up may have a costly gradient and no cheaper form. Lines of compiled functions are not seen, nor
are those under reentrant checkpoints. On a device, and where the script hooks tensors, walks a graph several
times or takes gradients of gradients, nothing is said.
"""

from collections.abc import Iterable

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.backward_time import share_of_lines, share_of_nodes, timed_nodes
from flatout.rules.facts.user_lines import costs
from flatout.schema.backward import BackwardCall, BackwardFacts, BackwardLine, BackwardPython
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run

MIN_SHARE, MIN_PARTS = 0.40, 0.15
MIN_TIMES = 5.0
USUAL = 2.0  # times its forward pass
AGAIN = 0.3  # of all nodes: then walking the graph again is the matter
PARTS = 8  # of one tensor, a step
WHOLE_ONES = ("AccumulateGrad", "CompiledFunctionBackward", "CheckpointFunctionBackward", "Embedding")

FORMS = {
    "SelectBackward": ("fills a tensor of zeros as large as the whole for each part that was cut out",
                       "Cut it once: `x.unbind(dim)`, or `x.split(size, dim)`"),
    "SliceBackward": ("fills a tensor of zeros as large as the whole for each part that was cut out",
                      "Cut it once: `x.split(size, dim)`"),
    "CopySlices": ("copies the gradient of the whole tensor for each part that was written",
                   "Collect the parts in a list, and `torch.stack` or `torch.cat` them once"),
    "CatBackward": ("cuts the gradient of all that there is so far, once for each piece that was added",
                    "Collect the pieces in a list, and `torch.cat` them once"),
    "IndexBackward": ("adds up rows one by one, because an index may repeat",
                      "Use `x.index_select(0, rows)`, or `F.embedding(rows, x)`, whose gradients are added row by row"),
    "IndexPutBackward": ("goes through the indices one by one", "Use `index_add`, `index_copy` or `torch.where`"),
    "CumprodBackward": ("needs several passes over the data, and looks for zeros",
                        "Where the numbers are positive, `torch.exp(torch.cumsum(torch.log(x), dim))` is the same"),
    "GatherBackward": ("adds into a tensor as large as what it gathers from",
                       "Gather before the tensor is expanded, or index its rows by `index_select`"),
    "CdistBackward": ("goes through pairs one by one",
                      "Use squares and one product: `x.square().sum(-1, True) + y.square().sum(-1) - 2 * x @ y.T`"),
}  # fmt: skip
OF_PARTS = ("SelectBackward", "SliceBackward", "CopySlices", "CatBackward")


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO029: the backward pass of one cheap line dominates the step."""
    found = timed_nodes(run)
    if found is None or _otherwise(found) or run.environment.device_kind != "cpu":
        return None
    groups: dict[Frame, list[BackwardLine]] = {}
    for each in found.lines:
        if each.place is not None and _is_torchs(each.node):
            groups.setdefault(each.place, []).append(each)
    slow = [one for nodes in groups.values() if (one := _slow(run, breakdown, found, nodes)) is not None]
    if not slow:
        return None
    worst, share, forward, stays = max(slow, key=lambda one: one[1])
    place = worst.place
    why, cure = _form(worst)
    return Finding(
        code="CO029",
        name="slow-backward-form",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(share - stays),
        location=place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is the backward pass of {at(place)}, mostly "
        f"{worst.node}, {worst.runs:.0f} a step, which {why}. {cure}.",
        evidence=(
            Evidence("its backward pass", share * breakdown.mean_ms, "ms"),
            Evidence("its forward pass", forward * breakdown.mean_ms, "ms"),
            Evidence("nodes a step", worst.runs, ""),
            Evidence("steps looked at", found.steps, ""),
        ),
        fixes=(),
        arguments=(Argument("node", worst.node), Argument("nodes_a_step", worst.runs)),
    )


def _slow(
    run: Run, breakdown: Breakdown, found: BackwardFacts, nodes: list[BackwardLine]
) -> tuple[BackwardLine, float, float, float] | None:
    """Return the slow node of a line, with the shares of its backward pass, of its forward pass, and of what stays."""
    cut = [each for each in nodes if each.node.startswith(OF_PARTS) and each.runs >= PARTS]
    worst = max(cut or nodes, key=lambda each: each.seconds)
    share = share_of_nodes(found, breakdown, worst.seconds if cut else sum(each.seconds for each in nodes))
    if worst.place is None or not _form(worst)[0] or share < (MIN_PARTS if cut else MIN_SHARE):
        return None
    forward = _forward(run, breakdown, worst.place)
    if not cut and share < MIN_TIMES * forward:
        return None
    return worst, share, forward, 0.0 if cut else min(share, USUAL * forward)


def _is_torchs(node: str) -> bool:
    """Return whether a node is of an operation of torch's; names of Functions in Python end with no number."""
    return (node[-1:].isdigit() or node == "CopySlices") and not node.startswith(WHOLE_ONES)


def _otherwise(found: BackwardFacts) -> bool:
    """Return whether something else may make nodes long or many: hooks, passes over one graph or through passes."""
    again = sum(each.again_s for each in found.calls)
    through = any(each.creates_graph for each in found.calls)
    return through or again > AGAIN * found.seconds or any(each.kind == "hook" for each in found.python)


def _forward(run: Run, breakdown: Breakdown, place: Frame) -> float:
    """Return the share of the step that was sampled at the line outside of the backward pass."""
    phases: Iterable[Phase] = (Phase.FORWARD, Phase.HOST)
    return sum(
        share_of_lines(run, breakdown, costs(run, phase, keep=lambda cost: cost.stack[:1] == (place,)), phase)
        for phase in phases
    )


def _form(node: BackwardLine) -> tuple[str, str]:
    """Return what a node does and what to write instead; nothing of those whose backward pass has no cheaper form."""
    name = next((name for name in FORMS if node.node.startswith(name)), "")
    return FORMS.get(name, ("", "")) if name not in OF_PARTS or node.runs >= PARTS else ("", "")


_PLACE = Frame("model.py", 20, "Net.forward")
_TRAIN = ("train.py", 44, "train")


def _with(
    seconds: float,
    node: str = "IndexBackward0",
    forward: float = 0.05,
    runs: float = 1.0,
    python: tuple[BackwardPython, ...] = (),
    calls: tuple[BackwardCall, ...] = (),
) -> Causes:
    """Return causes of 60 steps with forward passes of 1 s, of which the line takes `forward`."""
    made = (BackwardLine(place=_PLACE, node=node, runs=runs, seconds=seconds),)
    facts = BackwardFacts(steps=2, seconds=0.03, lines=made, python=python, calls=calls)
    lines = (
        line(forward, ("model.py", 20, "Net.forward"), _TRAIN, phase=Phase.FORWARD),
        line(1 - forward, _TRAIN, phase=Phase.FORWARD),
    )
    return Causes(lines=lines, num_steps=60, phases_s={Phase.BACKWARD: 2.0, Phase.FORWARD: 1.0}, backward=facts)


_HOOK = BackwardPython(place=_PLACE, kind="hook")
_THROUGH = BackwardCall(place=_PLACE, passes=1.0, seconds=0.01, creates_graph=True)

RULE = Rule(
    code="CO029",
    name="slow-backward-form",
    check=check,
    edits=(("unbind",), ("rows",), ("collect",)),
    fires_on=(
        example(step_ms=60, forward=10, backward=40, causes=_with(0.02)),
        example(step_ms=60, forward=10, backward=40, causes=_with(0.025, "CumprodBackward0")),
        example(step_ms=60, forward=10, backward=40, causes=_with(0.02, "SelectBackward0", runs=60)),
    ),
    quiet_on=(
        example(step_ms=60, forward=10, backward=40, causes=_with(0.015)),
        example(step_ms=60, forward=10, backward=40, causes=_with(0.025, "ConvolutionBackward0")),
        example(step_ms=60, forward=10, backward=40, causes=_with(0.015, "SelectBackward0", runs=2)),
        example(step_ms=60, forward=15, backward=40, causes=_with(0.025, forward=0.9)),
        example(step_ms=60, forward=10, backward=40, causes=_with(0.025, python=(_HOOK,))),
        example(step_ms=60, forward=10, backward=40, causes=_with(0.025, calls=(_THROUGH,))),
        example(step_ms=60, forward=10, backward=40, causes=_with(0.025, "CompiledFunctionBackward")),
        example(step_ms=60, forward=10, backward=40, causes=Causes(num_steps=60)),
    ),
)
