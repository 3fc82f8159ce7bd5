"""After all gradients are computed, ranks still exchange them for a while and do nothing else meanwhile.

## What it measures

How long each exchange of DistributedDataParallel runs after the backward pass has computed everything, on the rank that
came last: it waits for nobody, so what is left is the exchange itself. The median over the exchanges of the deep run is
compared with its step. It fires when that is at least 10% of the step, and 2 ms: below, the cause is not the amount of
data. More than 1.5 exchanges in a step are left to DI004; while other processes use the machine, nothing is reported.

## Why it matters

Buckets of gradients are exchanged while others are still computed. What does not overlap with computation is time in
which every device waits for the network, and it grows with the number of ranks.

## What to do

Exchange less, or less often: gradients in 16 bits (`register_comm_hook` with `bf16_compress_hook`), several
micro-batches for each exchange, larger batches. Freeze what is not trained (`requires_grad_(False)`): the gradient of
every parameter with `requires_grad=True` is exchanged, even if no optimizer updates it, and freezing then saves more
than the exchange. Look at `bucket_cap_mb`: the last bucket is never hidden. On one machine, check that the backend is
the right one (nccl for GPUs).

## When it is wrong

Gloo's exchange runs on the cores that compute: on a CPU it is expensive although no network is slow. Where ranks run
more threads than there are cores, nothing is reported: the exchange has to wait for a core (see DI002). Sharded
training (FSDP) exchanges in other ways, and is not seen.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.gradient_exchanges import exposed
from flatout.rules.facts.machine_facts import cores_are_shared, is_disturbed
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Exchange, Frame, RankSummary, Run, Utilization
from flatout.units import format_ms, format_share

MIN_SHARE = 0.10
MIN_S = 2e-3
MOST_IN_A_STEP = 1.5  # more are DI004's


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """DI003: a tenth of the step is nothing but the exchange of gradients."""
    found = exposed(run)
    if found is None or found.share < MIN_SHARE or found.itself_s < MIN_S:
        return None
    if found.per_step > MOST_IN_A_STEP or cores_are_shared(run) or is_disturbed(run):
        return None
    return Finding(
        code="DI003",
        name="exposed-communication",
        phase=Phase.BACKWARD,
        share=found.share,
        max_speedup=speedup_without(found.share),
        location=found.seen.place,
        message=f"{format_share(found.share)} of each step is the exchange of gradients alone, after the last rank has "
        f"computed its own: {format_ms(found.itself_s * 1000)} (n={found.n} exchanges of {len(run.ranks)} ranks). "
        "Exchange 16-bit gradients, or less often.",
        evidence=(
            Evidence("exchange alone", found.itself_s * 1000, "ms"),
            Evidence("whole exchange", found.seen.exchange_s * 1000, "ms"),
            Evidence("waiting for the last rank", found.waiting_s * 1000, "ms"),
            Evidence("ranks", len(run.ranks), ""),
        ),
        fixes=("bf16-exchange",),
    )


_AT = Frame("train.py", 30, "train")


def _ranks(*exposed_ms: float, exchanges: float = 1.0, n: int = 20, step_ms: float = 100) -> tuple[RankSummary, ...]:
    """Return ranks whose every exchange runs alone that long."""
    return tuple(
        RankSummary(
            rank=number,
            num_steps=60,
            median_ms=100.0,
            exchange=Exchange(
                steps=n,
                exchanges=exchanges,
                exposed_s={str(i): ms / 1000 for i in range(n)},
                exchange_s=0.04,
                step_s=step_ms / 1000,
                place=_AT,
            ),
        )
        for number, ms in enumerate(exposed_ms)
    )


_SHARED = Environment(torch_threads=2, num_cpus=2, device_kind="cpu")
_OTHERS = tuple(Utilization(at_s=0.5 * i, main_cpu=1.0, foreign_cpu=0.8) for i in range(12))

RULE = Rule(
    code="DI003",
    name="exposed-communication",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(25, 25)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(60, 11, 40, 70)),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(60, 9)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(25, 25, n=9)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(25)),
        example(step_ms=5, forward=1, backward=3, ranks=_ranks(1.5, 1.5, step_ms=5)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(25, 25, exchanges=4)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(25, 25), utilization=_OTHERS),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(25, 25), environment=_SHARED),
    ),
)
