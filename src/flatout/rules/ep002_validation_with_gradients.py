"""Validation records the autograd graph, although no backward pass follows.

## What it measures

Validation passes whose forward passes ran with gradients enabled. It fires when they take at least 2% of the recording
without start-up. The saving is measured where a copy of the model can be called after the last step: passes with
gradients and without, in turn, with up to 64 graphs alive where the script keeps more than 8 alive. The bound is the
difference times the number of passes, at most 95% of the validation. Where passes without gradients are not faster, the
rule is quiet, unless graphs pile up. Elsewhere (hooks, several models or ranks, more than 256 MB, passes of 0.5 s or
longer, compiled, autocast, arguments that are neither tensors nor plain values) the bound is an estimate: 25% of that
time.

## Why it matters

With gradients, every operation creates a node of the graph and keeps its inputs alive: each pass takes longer, and
uses as much memory as in training. Measured on one CPU core (n=40): the forward pass of a small MLP took 16% less
without gradients, a CNN 23%, a residual network 16%, an LSTM 7%. Loading and metrics, which validation also does, gain
nothing.

## What to do

`with torch.no_grad():` around the validation loop, or `@torch.no_grad()` on its function. `model.eval()` does not do
that: it only changes dropout and normalization.

## When it is wrong

Validation that needs gradients (adversarial examples, physics losses, saliency) must keep them.
"""

from collections.abc import Sequence
from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_loop
from flatout.rules.facts.gaps import num_pauses
from flatout.rules.facts.validation import passes, place
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LoaderFacts, Outside, Run, UnusedGraphs
from flatout.units import format_ms

MIN_SHARE = 0.02
SAVED = 0.25  # the most that switching gradients off saved on four small models
MOST = 0.95  # of validation, whatever was measured: loading and metrics stay
LEAST = 3  # blocks of each kind


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP002: validation with gradients takes a fiftieth of the loop."""
    found = [stretch for stretch in passes(run) if stretch.with_grad]
    spent_s = min(sum(stretch.wall_ns for stretch in found) / 1e9, breakdown.loop_s)
    share = breakdown.loop_share(spent_s)
    if not found or share < MIN_SHARE:
        return None
    graphs, count = _measured(run, found), num_pauses(run, found)
    saved_s = _saved_s(found, graphs, spent_s) if graphs else SAVED * spent_s
    if saved_s <= 0 and not (graphs and graphs.piled):
        return None
    return Finding(
        code="EP002",
        name="validation-with-gradients",
        phase=Phase.VALIDATION,
        share=share,
        max_speedup=speedup_without(breakdown.loop_share(saved_s)),
        bound_by="the validation itself stays",
        location=place(run),
        message=f"{of_loop(breakdown, spent_s, count)} is validation that records gradients. Run it under "
        f"torch.no_grad(); {_saving(graphs)}.",
        evidence=(
            Evidence("one validation", spent_s / count, "s"),
            Evidence("share saved, at most" if graphs else "share saved, at most, estimated", saved_s / spent_s, ""),
        ),
        fixes=(),
    )


def _measured(run: Run, found: Sequence[Outside]) -> UnusedGraphs | None:
    """Return the measured times of a pass with and without gradients; None if not measured or passes not counted."""
    graphs = run.causes.unused_graphs if run.causes else None
    if graphs is None or graphs.n < LEAST:
        return None
    return graphs if all(stretch.grad_passes for stretch in found) else None


def _saved_s(found: Sequence[Outside], graphs: UnusedGraphs, spent_s: float) -> float:
    """Return the seconds saved: the gain of one pass of the model times the number of passes."""
    made = sum(stretch.grad_passes for stretch in found)
    return min(MOST * spent_s, max(0.0, graphs.with_s - graphs.without_s) * made)


def _saving(graphs: UnusedGraphs | None) -> str:
    if graphs is None:
        return "that saves an estimated 5 to 25% of it, and memory"
    piled = f", {graphs.piled} graphs alive together" if graphs.piled else ""
    with_ms, without_ms = format_ms(1000 * graphs.with_s), format_ms(1000 * graphs.without_s)
    return f"a pass of the model then takes {without_ms} in place of {with_ms} (n={graphs.n}{piled})"


_LOADER = LoaderFacts(name="Pictures", iterated_at=Frame("train.py", 70, "evaluate"))
_PASS = Outside(phase=Phase.VALIDATION, start_ns=5_000_000_000, wall_ns=500_000_000, with_grad=True, num_batches=20)
_COUNTED = replace(_PASS, grad_passes=20)
_PILED = Causes(unused_graphs=UnusedGraphs(model="Net", n=5, piled=20, with_s=0.02, without_s=0.012))
_AS_FAST = Causes(unused_graphs=UnusedGraphs(model="Net", n=5, with_s=0.02, without_s=0.02))

RULE = Rule(
    code="EP002",
    name="validation-with-gradients",
    check=check,
    shown_by_few=True,
    edits=(("no-gradients",),),
    fires_on=(
        example(step_ms=50, n=100, forward=40, outside=(_PASS,), loaders=(_LOADER,)),
        example(step_ms=50, n=400, forward=40, outside=(_PASS,)),
        example(step_ms=50, n=100, forward=40, outside=(_COUNTED,), causes=_PILED),
        example(step_ms=50, n=100, forward=40, outside=(_PASS,), causes=_AS_FAST),
    ),
    quiet_on=(
        example(step_ms=50, n=500, forward=40, outside=(_PASS,)),
        example(step_ms=50, n=100, forward=40, outside=(_COUNTED,), causes=_AS_FAST),
        example(step_ms=50, n=100, forward=40, outside=(replace(_PASS, with_grad=False),), loaders=(_LOADER,)),
    ),
)
