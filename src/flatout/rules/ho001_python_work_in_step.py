"""Python code of the script runs between the parts of the step, while model and device wait.

## What it measures

Host time in the user's own functions: time that is not input, forward, backward or optimizer, does not print or write,
and does not grow. The function with the most time is reported at its hottest line, from 7% of the step on. Where a
function outside of the training loop calls at least four others and none of these takes 45% of its time, the function
as a whole is reported, at the line of its most expensive part. If one statement calls it after the backward pass and
the optimizer's step, the whole cost of that statement counts, and so do the other methods of the same class, unless the
class runs the training: in `prototype_accuracy` the function's own Python was 18% of the step, the statement 37%
(n=4,279 steps). Lines below which the whole step runs (`trainer.fit(...)`) are not named: the rest of their time is the
framework's loop. Hooks of the model that only watch it (their source detaches values or reads numbers) count, too,
where they cost more than any other function: their time is part of the forward pass.

## Why it matters

Everything on the main thread between two steps adds to each of them. Metrics in numpy or scikit-learn, string handling
and checks of every element often cost more than the model; other tools count them as "other".

## What to do

Do it every N steps or once an epoch; do it with one operation on whole tensors instead of a loop; move it to the
dataset, where workers do it. `flatout tune` tries a list for a tensor that `torch.cat` lets grow in a loop,
`torch._foreach_` operations for a loop that changes tensors in place (an average of the weights), a metric moved into
the `if` that alone uses it, where the source shows that it has no other effect, `state_dict()` without `copy.deepcopy`
where it is only read and loaded, one set or dictionary for lookups in a list.

## When it is wrong

A line that does the training's own arithmetic in torch (an average of the weights, a penalty) is needed: the only
question is whether one fused operation (`torch._foreach_...`) can replace a loop over tensors. The bound covers this
time alone. The rest of the step often becomes faster, too, because nothing else evicts its data from the caches.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line, steps_of
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, goes_to, of_step, within
from flatout.rules.facts.behind_step import behind_step
from flatout.rules.facts.growth import growth
from flatout.rules.facts.host_python import OURS, hook_work, python_work, writing
from flatout.rules.facts.user_lines import Hotspot, costs, hottest, seconds
from flatout.rules.source.chains import Chain, listed, named_parts, spread_over
from flatout.rules.source.statements import of_one_statement
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run

MIN_SHARE = 0.07
NOTEWORTHY = 1.1  # times the function's own cost; above this the message names the statement
GROWING = 0.05  # of the step; HO003 reports growth of at least this share


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """HO001: one function of the script's own costs 7% of the step."""
    spot, chain = _slow(run, breakdown)
    phase = Phase.HOST
    late = _behind_step(run)
    if late is not None and breakdown.share(Phase.INPUT) * late.share > breakdown.share(Phase.HOST) * _of(spot):
        spot, chain, phase = late, None, Phase.INPUT
    hook = hottest(hook_work(run), among=costs(run, Phase.FORWARD, keep=lambda cost: cost.leaf != OURS))
    hooked = breakdown.share(Phase.FORWARD) * hook.share if hook else 0.0
    share = breakdown.share(phase) * _of(spot)
    if hook is not None and hooked > share:
        return _finding(breakdown, hook, hooked, f"a hook of the model, in {goes_to(hook)}", phase=Phase.FORWARD)
    if spot is None or share < MIN_SHARE:
        return None
    if chain is not None:
        where = f"the training loop, in {within(spot)}, in {named_parts(chain)}"
        return _finding(breakdown, spot, share, where, listed(chain, share * breakdown.mean_ms))
    whole = None if _grows(run, breakdown) or phase is Phase.INPUT else of_one_statement(run, spot)
    called = ""
    if whole is not None:
        host_s = seconds(costs(run, Phase.HOST))
        share = max(share, breakdown.share(Phase.HOST) * min(1.0, whole.seconds / host_s))
    if whole is not None and whole.seconds > NOTEWORTHY * spot.seconds:
        called = f"below {at(whole.place)}, {'most' if spot.seconds > whole.seconds / 2 else 'part'} of it "
    return _finding(breakdown, spot, share, f"the training loop, {called}in {goes_to(spot)}")


def _finding(
    breakdown: Breakdown,
    spot: Hotspot,
    share: float,
    where: str,
    parts: tuple[Evidence, ...] = (),
    *,
    phase: Phase = Phase.HOST,
) -> Finding | None:
    """Return the finding that `spot` costs `share` of the step; None where that is little."""
    if share < MIN_SHARE:
        return None
    cost_ms = share * breakdown.mean_ms
    return Finding(
        code="HO001",
        name="python-work-in-step",
        phase=phase,
        share=share,
        max_speedup=speedup_without(share),
        location=spot.place,
        message=f"{of_step(breakdown, cost_ms)} is Python in {where} ({spot.samples} stack samples). Do it every N "
        "steps, on whole tensors, or in the dataset.",
        evidence=(
            Evidence("cost in each step", cost_ms, "ms"),
            Evidence(f"share of the {phase.value} time", spot.share, ""),
            Evidence("stack samples", spot.samples, ""),
            *parts,
        ),
        fixes=("compiled-python", "buffered-files", "kept-reads"),
    )


def _of(spot: Hotspot | None) -> float:
    return spot.share if spot else 0.0


def _behind_step(run: Run) -> Hotspot | None:
    """Return the hottest function behind the step, where no loader tells that it is not the next batch that is made."""
    before = costs(run, Phase.INPUT, stages=("generator",))
    return hottest(behind_step(run, before), among=costs(run, Phase.INPUT))


def _slow(run: Run, breakdown: Breakdown) -> tuple[Hotspot | None, Chain | None]:
    """Return the hottest function, or the one that spreads most of the time over many parts.

    Where host time grows, it is the hottest except the one that HO003 reports.
    """
    lines, host = python_work(run), costs(run, Phase.HOST)
    if not _grows(run, breakdown):
        spot = hottest(lines, among=host)
        chain = spread_over(run, spot, lines, host)
        return (chain.spot, chain) if chain else (spot, None)
    growing = hottest(lines + writing(run), among=host)
    if growing is None:
        return None, None
    named = (growing.inside.file, growing.inside.function)
    return hottest([c for c in lines if (c.stack[0].file, c.stack[0].function) != named], among=host), None


def _grows(run: Run, breakdown: Breakdown) -> bool:
    rise = growth(run.steps[breakdown.warmup :], Phase.HOST)
    return rise is not None and rise.extra_ms >= GROWING * breakdown.mean_ms


_METRIC = ("metrics.py", 8, "confusion")
_LINES = (
    line(1.2, _METRIC, ("train.py", 55, "train"), phase=Phase.HOST, part="tail", leaf="numpy"),
    line(0.2, ("train.py", 57, "train"), phase=Phase.HOST, part="tail", leaf="torch"),
)
_FIT = ("train.py", 90, "main")
_FRAMEWORK = (
    line(1.2, _FIT, phase=Phase.HOST, part="tail", leaf="lightning", leaf_function="advance"),
    line(1.0, _FIT, phase=Phase.OPTIMIZER, leaf="torch"),
    line(2.0, ("model.py", 9, "Net.training_step"), _FIT, phase=Phase.BACKWARD, leaf="torch"),
)
_COMPILED = (line(1.2, ("/tmp/torchinductor_me/ab/call.py", 9, "call"), phase=Phase.HOST, part="lead"),)
_LOSS = (line(1.2, ("train.py", 50, "train"), phase=Phase.HOST, part="loss", leaf="torch"),)
_WALKS = (LoaderFacts(is_training=True, iterated_at=Frame("train.py", 30, "train")),)
_FREES = (line(1.2, ("train.py", 30, "train"), phase=Phase.HOST, part="lead"),)
_CHAIN = tuple(
    line(0.3, ("probes.py", 10 * i, f"probe{i}"), ("probes.py", 90 + i, "watch"), ("train.py", 55, "train"),
         phase=Phase.HOST, part="tail", leaf="numpy")
    for i in range(5)
)  # fmt: skip
_GROWS = steps_of([{Phase.HOST: 5 + 0.2 * i, Phase.FORWARD: 20} for i in range(60)])

RULE = Rule(
    code="HO001",
    name="python-work-in-step",
    check=check,
    edits=(
        ("collect",),
        ("foreach",),
        ("seldom-work",),
        ("state-copies",),
        ("list-lookups",),
        ("element-writes",),
        ("builtin-sum",),
        ("log-level",),
    ),
    fires_on=(
        example(step_ms=100, forward=30, backward=40, lines=_LINES),
        example(step_ms=100, forward=40, backward=50, lines=_LINES),
        example(step_ms=100, forward=40, backward=50, lines=_CHAIN),
    ),
    quiet_on=(
        example(steps=_GROWS, lines=_LINES),
        example(step_ms=100, forward=42, backward=50, lines=_LINES),
        example(step_ms=100, forward=30, backward=40, lines=_LOSS),
        example(step_ms=100, forward=30, backward=40, lines=_FRAMEWORK),
        example(step_ms=100, forward=30, backward=40, lines=_COMPILED),
        example(step_ms=100, forward=30, backward=40, lines=_FREES, loaders=_WALKS),
        example(step_ms=100, forward=30, lines=[line(1.2, ("log.py", 3, "log_row"), phase=Phase.HOST, leaf="csv")]),
        example(step_ms=100, forward=30, lines=[line(0.07, _METRIC, phase=Phase.HOST, part="tail")]),
    ),
)
