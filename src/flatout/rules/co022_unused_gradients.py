"""The backward pass computes gradients that no optimizer reads.

## What it measures

In three steps of the deep run, the time that the backward pass spends, part by part, in parts of the graph that lead to
no parameter of an optimizer (nor to a tensor that is not a parameter). Then steps with these parameters frozen
alternate with steps as they are, to measure what is saved. That is not done with several ranks, which would have to
agree on it, nor where the model is compiled, or the script sets these gradients to None or hooks tensors. With several
ranks, the share of these gradients in the exchange counts, as far as that runs alone (DI003). It fires at 5% of the
step.

## Why it matters

Whatever requires gradients gets them: a pretrained encoder under a new head, word vectors that are to stay as they
are. Handing only the head to the optimizer does not stop the backward pass at the encoder, and nobody sets such
gradients to zero: they grow from step to step, and stay in memory beside the weights.

## What to do

`requires_grad_(False)` on what is not trained, before the optimizer and `DistributedDataParallel` are made. Where
nothing before it is trained, put its forward pass under `torch.no_grad()` too: activations need not be kept.
`flatout tune` tries the latter for a line `name = network(x)` whose input asks for no gradients, unless the source may
train more later (`add_param_group`, `requires_grad_(True)`, an optimizer made under a condition).

## When it is wrong

Where the script itself reads the gradients (logs them, clips them together with the others by
`clip_grad_norm_(model.parameters())`, uses them for attribution), freezing changes what it sees. Left out are
parameters whose values change or that an optimizer holds that has not stepped yet, and all of a model with reentrant
checkpoints. A part that trains one parameter and not another is not counted. On a device nothing is frozen, and
the probe waits for each part, which makes short ones look longer.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.gradient_exchanges import exposed
from flatout.rules.facts.setting_trials import computing, measured, priced
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Exchange, Frame, RankSummary, Run, SettingTrial, UnusedGradients
from flatout.units import format_bytes, format_share

MIN_SHARE = 0.05
LEAST = 2  # steps looked at


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO022: a twentieth of the step computes gradients of what is not trained."""
    causes = run.causes or Causes()
    found = causes.unused_gradients
    if found is None or found.n < LEAST or found.all_bytes <= 0 or not causes.num_steps:
        return None
    of_all = min(1.0, found.num_bytes / found.all_bytes)
    between = exposed(run)
    exchanged = between.share * of_all if between else 0.0
    backward, price = breakdown.share(Phase.BACKWARD), measured(run, "gradients")
    gone = min(backward, _computing(causes, found) * backward + exchanged)
    if price is not None:  # later phases are faster, too: memory is not overwritten each time
        tried = max(0.0, price.share * computing(breakdown))
        gone = tried if priced(run, "gradients") else min(gone, tried)
    if gone < MIN_SHARE:
        return None
    share = min(gone, backward)
    return Finding(
        code="CO022",
        name="unused-gradients",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(gone),
        bound_by="later phases get shorter, too: memory is not overwritten each time",
        location=found.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to computing"
        f"{' and exchanging' if exchanged else ''} gradients that no optimizer reads: {format_bytes(found.num_bytes)}, "
        f"{format_share(of_all)} of all, most of them of `{found.largest}`. Freeze what is not trained: "
        "`requires_grad_(False)`.",
        evidence=(
            Evidence("computing them", found.seconds * 1000, "ms"),
            Evidence("share of the exchange alone", exchanged, ""),
            Evidence("parameters", found.parameters, ""),
            Evidence("steps looked at", found.n, ""),
        ),
        fixes=(),
        arguments=_arguments(found),
    )


def _arguments(found: UnusedGradients) -> tuple[Argument, ...]:
    """Return what is not trained: the whole of what is called ("") or a part of it, where all of that is not."""
    said = (Argument("largest", found.largest), Argument("parameters", found.parameters))
    if found.untrained is None:
        return said
    return (*said, Argument("untrained", found.untrained), Argument("given_gradients", int(found.given_gradients)))


def _computing(causes: Causes, found: UnusedGradients) -> float:
    """Return which share of the deep run's backward time these gradients take."""
    backward_s = causes.phases_s.get(Phase.BACKWARD, 0.0) / causes.num_steps
    return min(1.0, found.seconds / backward_s) if backward_s > 0 else 0.0


def _found(seconds: float, num_bytes: int = 75_000_000, n: int = 3, backward_s: float = 3.0) -> Causes:
    """Return causes of 60 steps, whose backward passes took `backward_s` together."""
    place = Frame("train.py", 30, "train")
    found = UnusedGradients(
        n=n,
        parameters=60,
        num_bytes=num_bytes,
        all_bytes=100_000_000,
        largest="stem.weight",
        seconds=seconds,
        place=place,
    )
    return Causes(num_steps=60, phases_s={Phase.BACKWARD: backward_s}, unused_gradients=found)


def _frozen(share: float, ordered: float = 1.0) -> Causes:
    """Return such causes where steps without these gradients took that much less, of all pairs so many."""
    price = SettingTrial(switch="gradients", own=1.0, share=share, steps=20, ordered=ordered if share > 0 else 0.5)
    return replace(_found(0.03), prices=(price,))


def _ranks(exposed_s: float) -> tuple[RankSummary, ...]:
    """Return two ranks whose exchanges run alone that long, in steps of 100 ms."""
    seen = Exchange(steps=20, exchanges=1.0, exposed_s={str(i): exposed_s for i in range(20)}, step_s=0.1)
    return tuple(RankSummary(rank=rank, num_steps=60, median_ms=100.0, exchange=seen) for rank in range(2))


RULE = Rule(
    code="CO022",
    name="unused-gradients",
    check=check,
    edits=(("no-graph",),),
    fires_on=(
        example(step_ms=100, forward=40, backward=50, causes=_found(0.03)),
        example(step_ms=100, forward=40, backward=50, causes=_found(0.006)),
        example(step_ms=100, forward=40, backward=50, causes=_frozen(0.9)),
        example(step_ms=100, forward=40, backward=50, causes=_found(0.001), ranks=_ranks(0.02)),
    ),
    quiet_on=(
        example(step_ms=100, forward=40, backward=50, causes=_found(0.004)),
        example(step_ms=100, forward=40, backward=50, causes=_found(0.03, n=1)),
        example(step_ms=100, forward=40, backward=50, causes=_frozen(0.03)),
        example(step_ms=100, forward=40, backward=50, causes=_frozen(0.01, ordered=0.55)),
        example(step_ms=100, forward=40, backward=50, causes=_found(0.001), ranks=_ranks(0.002)),
        example(step_ms=100, forward=40, backward=50, causes=Causes(num_steps=60)),
    ),
)
