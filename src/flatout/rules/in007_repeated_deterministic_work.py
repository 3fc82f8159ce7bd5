"""The same samples are recomputed in every epoch, with identical results.

## What it measures

Whether `dataset[i]` is the same whatever the random state, and if not, how much of its time passes before the first
random draw, or in one function of the script's that gives the same for the same arguments. This is tested in the deep
run (the second, instrumented run), on at least two indices. That part must be at least half of a sample. Less the cost
of reading the result back (3 GB/s and 5 us a sample), it must be at least 15% of the step. Samples that share memory
with the dataset have nothing to cache. Workers that keep all cores busy with such work slow a training on the CPU down
even where it hardly waits for them: what that costs counts, too.

## Why it matters

Work that does not depend on random numbers needs doing once, not once an epoch. Measured on 2 cores: images resized
from 32 to 224 pixels 2,950 -> 35,700 samples/s from a cache of the resized pixels, JPEG files 468 -> 8,970 from
decoded pixels.

## What to do

Compute the fixed part once (decode, resize, tokenize, normalize), keep it as one array in memory or in a memory-mapped
file (`numpy.memmap`), and leave only the random part in `__getitem__`.

## When it is wrong

A training of one epoch visits every sample once: nothing repeats. The rule stays quiet when the cache would need more
than half of the machine's memory; a memory-mapped file on a fast disk may still work. A dataset that reads files which
change during training only looks deterministic.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_of_input, taken_by_workers
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.input_stages import FIXED_PART, SAMPLES, Stage
from flatout.rules.facts.loader_facts import fraction_of_batch, picks_rows, training_loader
from flatout.rules.facts.sample_stacks import sample_lines, where_samples_are_made
from flatout.rules.facts.user_lines import Hotspot, costs, hottest
from flatout.rules.source.chains import spread_over
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, LoaderFacts, Run, SamplePrefix
from flatout.units import format_bytes, format_share

MIN_SHARE = 0.15
MIN_CHECKED = 2
MIN_PREFIX = 0.5
MAX_SHARE_OF_MEMORY = 0.5
READ_BYTES_S = 3e9
READ_CALL_S = 5e-6


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN007: work that a cache would save is 15% of the step."""
    loader = training_loader(run)
    if loader is None or loader.prefix is None or picks_rows(run, loader):
        return None
    repeated = _repeated(loader.prefix)
    cache_bytes = loader.num_samples * loader.prefix.sample_bytes
    fraction = (fraction_of_batch(loader, loader.sample_s) or 1.0) * repeated
    taken, cores = taken_by_workers(run, breakdown, loader, fraction, headroom)
    share = max(taken, breakdown.share(Phase.INPUT) * fraction)
    if share < MIN_SHARE or not _fits(cache_bytes, run.environment.memory_bytes):
        return None
    spot = _hotspot(run, loader)
    known = cache_bytes and loader.prefix.deterministic  # otherwise an intermediate value is cached, of unknown size
    size = f", {format_bytes(cache_bytes)} for all {loader.num_samples} samples" if known else ""
    return Finding(
        code="IN007",
        name="repeated-deterministic-work",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_of_input(run, breakdown, loader, fraction, headroom),
        location=spot.place if spot else loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} {_lost(run, cores)} identical results every epoch: "
        f"{format_share(repeated)} of a sample{f', mostly in {within(spot)}' if spot else ''}. "
        f"Compute it once and keep the result{size}.",
        evidence=(
            Evidence("share of the sample", repeated, ""),
            Evidence("sample", loader.prefix.seconds * 1000, "ms"),
            Evidence("cache", cache_bytes, "bytes"),
            Evidence("indices tried", loader.prefix.checked, ""),
            *((Evidence("cores used by workers", cores, ""),) if taken else ()),
        ),
        fixes=("cached-input", "compiled-input"),
    )


def _lost(run: Run, cores: float) -> str:
    if not cores:
        return "recomputes"
    return (
        f"is lost to workers that take {cores:.1f} of the {run.environment.num_cpus} cores from the training, "
        "recomputing"
    )


def _repeated(prefix: SamplePrefix) -> float:
    """Return the share of a sample's time that a cache would save."""
    if prefix.checked < MIN_CHECKED or prefix.seconds <= 0 or prefix.shares_memory:
        return 0.0
    fixed = 1.0 if prefix.deterministic else min(1.0, prefix.prefix_share)
    if fixed < MIN_PREFIX:
        return 0.0
    read_s = READ_CALL_S + prefix.sample_bytes / READ_BYTES_S
    return max(0.0, fixed - read_s / prefix.seconds)


def _fits(cache_bytes: int, memory_bytes: int) -> bool:
    return memory_bytes <= 0 or cache_bytes <= MAX_SHARE_OF_MEMORY * memory_bytes


def _hotspot(run: Run, loader: LoaderFacts) -> Hotspot | None:
    among = costs(run, Phase.INPUT, process=where_samples_are_made(loader), stages=("sample",))
    lines = sample_lines(run, loader)
    spot = hottest(lines, among=among)
    chain = spread_over(run, spot, lines, among)
    return chain.spot if chain else spot


_MEMORY = Environment(memory_bytes=16 << 30)
_PREFIX = SamplePrefix(checked=8, deterministic=True, prefix_share=1.0, seconds=0.0009, sample_bytes=49_152)
_LOADER = LoaderFacts(
    is_training=True, batch_size=64, num_samples=10_000, sample_s=0.055, collate_s=0.005, fetches=30, prefix=_PREFIX
)
_RANDOM_AT_THE_END = replace(_LOADER, prefix=replace(_PREFIX, deterministic=False, prefix_share=0.8))
_RANDOM_AT_ONCE = replace(_LOADER, prefix=replace(_PREFIX, deterministic=False, prefix_share=0.1))
_LINES = (line(3.0, ("data.py", 34, "Resize.__call__"), stage="sample"),)


def _stage(finding: Finding, run: Run) -> Stage:
    loader = training_loader(run)
    whole = loader is not None and loader.prefix is not None and loader.prefix.deterministic
    return SAMPLES if whole else FIXED_PART


RULE = Rule(
    code="IN007",
    name="repeated-deterministic-work",
    check=check,
    after=("io-wait-low-concurrency", "connection-per-sample", "remote-reads-unused"),
    after_at_same_line=True,
    stage=_stage,
    takes_whole_stage=True,
    fires_on=(
        example(step_ms=100, input=60, forward=30, loaders=(_LOADER,), environment=_MEMORY, lines=_LINES),
        example(step_ms=100, input=60, forward=30, loaders=(_RANDOM_AT_THE_END,), environment=_MEMORY),
    ),
    quiet_on=(
        example(step_ms=100, input=16, forward=70, loaders=(_LOADER,), environment=_MEMORY),
        example(step_ms=100, input=60, forward=30, loaders=(_RANDOM_AT_ONCE,), environment=_MEMORY),
        example(step_ms=100, input=60, loaders=(replace(_LOADER, num_samples=1_281_167),), environment=_MEMORY),
    ),
)
