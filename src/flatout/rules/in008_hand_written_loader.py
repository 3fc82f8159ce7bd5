"""Batches come from the script's own generator, which works while the model waits.

## What it measures

The time the training loop spends getting a batch from the script's own code: a generator, an iterator class, slicing
and converting between the steps, where no `DataLoader` gave the batch. In a script without modules, that is what it
does before the loss in functions that mostly run numpy, pandas or other libraries without torch. It fires at 10% of the
step. Where the work is spread over at least four parts none of which takes 45%, the function that runs them is named.

## Why it matters

Such code runs in the training process, between two steps, with nothing overlapped. Tools that only look at
`DataLoader` count it as compute: for a benchmark script with this fault, one reported "other 100%: torch.compile is
not used".

## What to do

Build the whole batch in one call on arrays instead of sample by sample. Put remaining work in a `Dataset` and let a
`DataLoader` with workers run it, or prefetch the next batch on a thread. A generator that an `IterableDataset` yields
from, in a `DataLoader` with `batch_size=None`, is read ahead by `flatout tune` without another batch
([streams](../howto/streams.md)). It tries `compiled-python` for loops over numbers, `kept-reads` for files that are
read in each epoch, and sets and dictionaries for lookups in a list. Where the line averages weights between two steps,
it tries `state_dict()` without a deep copy.

## When it is wrong

If the generator only wraps a `DataLoader` (to repeat it forever), the time belongs to the loader: then the IN findings
about the loader apply. Steps that act in many environments at once, and learn from what they see, need that time: it is
not reported where each call of the policy gets more than eight rows.
"""

from flatout.analysis.rollouts import acts_in_many_environments
from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import goes_to, of_step
from flatout.rules.facts.acting_lines import acting_lines, mostly_acts
from flatout.rules.facts.manual_loading import batch_making, fed_by_torch, in_forward_time, in_host_time
from flatout.rules.facts.user_lines import costs, hottest, seconds
from flatout.rules.source.chains import listed, named_parts, spread_over
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Collected, LineCost, LoaderFacts, Run

MIN_SHARE = 0.10


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN008: a tenth of the step is a batch generator of the script's own."""
    acts = acts_in_many_environments(run) or mostly_acts(run)
    acting = set(acting_lines(run)) if acts else set()
    made = tuple(cost for cost in batch_making(run) if cost not in acting)
    own = made + in_host_time(run) + in_forward_time(run)
    share = _share(run, breakdown, made)
    if share < MIN_SHARE or (acts and not (acting and made)):
        return None
    spot = hottest(own, among=own)
    chain = spread_over(run, spot, own, own)
    spot = chain.spot if chain else spot
    where = f", most of it in {named_parts(chain) if chain else goes_to(spot)}" if spot else ""
    return Finding(
        code="IN008",
        name="hand-written-loader",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_without(share),
        location=spot.place if spot else None,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent building the next batch in the script's own "
        f"code, between the steps{where}. Build the batch in one call on arrays, or in a DataLoader's workers.",
        evidence=(
            Evidence("own code", share * breakdown.mean_ms, "ms"),
            Evidence("stack samples", spot.samples if spot else 0, ""),
            *(listed(chain, chain.spot.share * share * breakdown.mean_ms) if chain else ()),
        ),
        fixes=("compiled-python", "kept-reads", "kept-directories"),
    )


def _share(run: Run, breakdown: Breakdown, made: tuple[LineCost, ...]) -> float:
    """Return the share of the step: of its input, and of its host and forward time where batches are made in these.

    Without a deep run, only time in a `DataLoader` counts as input: hand-made batches are known from sampled lines.
    """
    seen, host = seconds(costs(run, Phase.INPUT)), seconds(costs(run, Phase.HOST))
    unseen = 0.0 if fed_by_torch(run) or run.causes is None else 1.0
    share = breakdown.share(Phase.INPUT) * (seconds(made) / seen if seen > 0 else unseen)
    share += breakdown.share(Phase.HOST) * seconds(in_host_time(run)) / host if host > 0 else 0.0
    forward, inside = seconds(costs(run, Phase.FORWARD)), seconds(in_forward_time(run))
    return share + (breakdown.share(Phase.FORWARD) * inside / forward if forward > 0 else 0.0)


_GENERATOR = (
    line(2.0, ("train.py", 31, "batches"), stage="generator"),
    line(0.4, ("train.py", 35, "batches"), stage="generator", leaf="numpy"),
)
_LOOP = ("train.py", 50, "train")
_BACKWARD = line(1.0, _LOOP, phase=Phase.BACKWARD)
_FEATURES = (
    line(1.2, ("train.py", 20, "describe"), _LOOP, phase=Phase.FORWARD, part="lead", leaf="numpy"),
    line(0.8, ("train.py", 21, "describe"), _LOOP, phase=Phase.FORWARD, part="lead"),
    _BACKWARD,
)
_WEIGHTS = (line(2.0, ("train.py", 20, "model"), _LOOP, phase=Phase.FORWARD, part="lead", leaf="torch"), _BACKWARD)
_CALLBACK = line(2.0, ("train.py", 31, "Loop.on_batch_end"), phase=Phase.HOST, part="lead")
_COLLECTING = Causes(
    collected=Collected(calls=800, rows=51200, checked=4000, matched=4000, steps=100, steps_with_calls=100),
    lines=_GENERATOR,
    num_steps=100,
)
_TORCH = LoaderFacts(is_training=True, batch_size=64, epochs_started=1, fetches=60)

RULE = Rule(
    code="IN008",
    name="hand-written-loader",
    check=check,
    edits=(("state-copies",), ("list-lookups",), ("builtin-sum",)),
    fires_on=(
        example(step_ms=100, input=45, forward=30, lines=_GENERATOR),
        example(step_ms=100, input=45, forward=30, causes=Causes()),
        example(
            step_ms=100, forward=30, lines=[line(2.0, ("train.py", 31, "next_batch"), phase=Phase.HOST, part="lead")]
        ),
        example(step_ms=100, forward=60, lines=_FEATURES),
    ),
    quiet_on=(
        example(step_ms=100, forward=60, lines=_WEIGHTS),
        example(step_ms=100, input=9.9, forward=60, lines=_GENERATOR),
        example(step_ms=100, input=45, forward=30),  # the deep run was lost: nothing is known of loaders
        example(step_ms=100, input=45, forward=30, causes=_COLLECTING),
        example(step_ms=100, host=58, forward=30, lines=(_CALLBACK,)),
        example(step_ms=100, input=45, loaders=(_TORCH,)),
        example(step_ms=100, input=45, loaders=(_TORCH,), lines=[line(2, ("d.py", 3, "get"), stage="sample")]),
    ),
)
