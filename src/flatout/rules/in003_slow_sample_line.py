"""One function of the dataset takes a large part of the time to make a sample.

## What it measures

The deep run (the second, instrumented run) samples the call stack of the process that makes the samples (the main
process, or every worker) and attributes each stack sample to the innermost function of the user's own code. The
function with the most time is reported, at its hottest line, when it was seen at least 8 times, takes a quarter of the
loading time and costs at least 10% of the step. Where a function calls at least four others and none of these takes 45%
of its time, the function as a whole is reported, at the line of its most expensive part. Where the dataset comes from a
library, the only user code is the loop over the loader; that line is never named.

Workers that keep all cores busy slow a training on the CPU down even where it hardly waits for them. Then the cost is
the share of the step that goes when the training has its cores to itself.

## Why it matters

This is the line to change. Often one call takes nearly all of the time: a resize in Python, a file opened again for
each sample, a lookup that scans a list.

## What to do

Check whether the result is the same every epoch (then compute it once), whether less would do (decode smaller, read
fewer columns), and whether a faster library does the same (for JPEG, simplejpeg decodes 1,040 images/s a core where
PIL reaches 730). Look up in dictionaries and sets, not with `list.index` and `in` of a list. If the work can be
vectorized, do it once for the whole batch instead of once for each sample.

## When it is wrong

With workers, the gain ends where the step no longer waits; the stated bound includes this. C code that holds the
interpreter lock for long is sampled only at its end, so a neighboring line can be named.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_of_input, taken_by_workers
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import goes_to, of_step, within
from flatout.rules.facts.input_stages import COLLATE, SAMPLES, Stage
from flatout.rules.facts.loader_facts import per_sample_s, picks_rows, training_loader
from flatout.rules.facts.sample_stacks import sample_lines, where_samples_are_made
from flatout.rules.facts.user_lines import Hotspot, costs, hottest, seconds
from flatout.rules.source.chains import Chain, listed, named_parts, spread_over
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Frame, LoaderFacts, Run, Utilization
from flatout.units import format_share

MIN_SHARE = 0.10
MIN_SHARE_OF_LOADING = 0.25
UNTOUCHED_S = 15e-6  # indexing two arrays and returning a tuple
WORK = ("sample", "collate", "sampler")

_OF_LINES = {"sample": SAMPLES, "collate": COLLATE, "sampler": COLLATE}
_NEARLY_ALL = 0.9


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN003: a quarter of the loading and a tenth of the step are one function of the dataset."""
    loader = training_loader(run)
    spot, chain = _slow(run, loader)
    if spot is None or spot.share < MIN_SHARE_OF_LOADING or (loader and _is_a_view(run, loader)):
        return None
    taken, cores = taken_by_workers(run, breakdown, loader, spot.share, headroom)
    share = max(taken, breakdown.share(Phase.INPUT) * spot.share)
    if share < MIN_SHARE:
        return None
    cost_ms = share * breakdown.mean_ms
    told = (Evidence("cores used by workers", cores, ""), Evidence("cores", run.environment.num_cpus, ""))
    return Finding(
        code="IN003",
        name="slow-sample-line",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_of_input(run, breakdown, loader, spot.share, headroom),
        location=spot.place,
        message=f"{of_step(breakdown, cost_ms)} is {_lost(run, cores)} {_where(spot, chain)}: "
        f"{format_share(spot.share)} of the loading {_process(loader)} ({spot.samples} stack samples). {_cure(chain)}",
        evidence=(
            Evidence("share of the loading", spot.share, ""),
            Evidence("stack samples", spot.samples, ""),
            Evidence("cost in each step", cost_ms, "ms"),
            *(told if taken else ()),
            *(listed(chain, cost_ms) if chain else ()),
        ),
        fixes=("compiled-input", "cached-input", "compiled-python", "kept-directories", "kept-reads", "loader-workers"),
    )


def _lost(run: Run, cores: float) -> str:
    if not cores:
        return "spent in"
    return f"lost to workers that take {cores:.1f} of the {run.environment.num_cpus} cores from the training, with"


def _where(spot: Hotspot, chain: Chain | None) -> str:
    return f"{within(spot)}, in {named_parts(chain)}" if chain else goes_to(spot)


def _process(loader: LoaderFacts | None) -> str:
    return "in each worker" if loader and loader.num_workers > 0 else "in the training process"


def _cure(chain: Chain | None) -> str:
    if chain:
        return "Do all of it for a whole batch at once, or compute once what is the same every epoch."
    return "Compute it once if it is the same every epoch; otherwise make this line cheaper."


def _is_a_view(run: Run, loader: LoaderFacts) -> bool:
    """Return whether a sample is returned without any work on it: the line is not slow then, and IN006 reports it."""
    untouched = loader.prefix is not None and loader.prefix.shares_memory
    return picks_rows(run, loader) and (untouched or per_sample_s(run, loader) < UNTOUCHED_S)


def _slow(run: Run, loader: LoaderFacts | None) -> tuple[Hotspot | None, Chain | None]:
    """Return the hottest function of the sample stage where samples are made, or the chain of many small ones."""
    process = where_samples_are_made(loader)
    among = costs(run, Phase.INPUT, process=process, stages=WORK if process == "worker" else None)
    lines = sample_lines(run, loader)
    spot = hottest(lines, among=among)
    chain = spread_over(run, spot, lines, among)
    return (chain.spot, chain) if chain else (spot, None)


_RESIZE = ("data.py", 34, "Resize.__call__")
_GETITEM = ("data.py", 61, "Pictures.__getitem__")
_MAIN = (
    line(2.4, _RESIZE, _GETITEM, stage="sample", leaf="PIL", leaf_function="resize"),
    line(0.9, _GETITEM, stage="sample", leaf="PIL", leaf_function="open"),
    line(0.3, stage="collate", leaf="torch"),
)
_WORKER = tuple(line(s, f, process="worker", stage="sample") for s, f in ((6.0, _RESIZE), (3.0, _GETITEM)))
_LOOP = Frame("train.py", 28, "train")
_LIBRARY = tuple(
    line(2.0, ("train.py", 28, "train"), stage="sample", leaf="torchvision", process=p) for p in ("main", "worker")
)
_WORKERS = LoaderFacts(is_training=True, num_workers=2, batch_size=64, fetches=60)
_CHAIN = tuple(
    line(0.5, ("data.py", 10 * i, f"change{i}"), ("data.py", 60 + i, "augment"), _GETITEM, stage="sample")
    for i in range(1, 6)
)
_TWO_CORES = Environment(num_cpus=2, torch_threads=1)
_BUSY = tuple(Utilization(at_s=0.5 * i, main_cpu=0.65, worker_cpu=1.3) for i in range(12))
_IDLE = tuple(Utilization(at_s=0.5 * i, main_cpu=0.65, worker_cpu=0.3) for i in range(12))


def _stage(finding: Finding, run: Run) -> Stage | None:
    """Return the stage in which nearly all of the time below the finding's function was seen."""
    place = finding.location
    if place is None:
        return None
    below = [
        cost
        for cost in costs(run, Phase.INPUT, process=where_samples_are_made(training_loader(run)))
        if any((frame.file, frame.function) == (place.file, place.function) for frame in cost.stack)
    ]
    whole = seconds(below)
    for name, stage in _OF_LINES.items():
        if whole > 0 and seconds([cost for cost in below if cost.stage == name]) >= _NEARLY_ALL * whole:
            return stage
    return None


RULE = Rule(
    code="IN003",
    name="slow-sample-line",
    check=check,
    stage=_stage,
    edits=(("element-writes",), ("list-lookups",)),
    fires_on=(
        example(step_ms=100, input=60, forward=30, lines=_MAIN),
        example(step_ms=100, input=40, forward=50, lines=_WORKER, loaders=(_WORKERS,)),
        example(step_ms=100, input=60, forward=30, lines=_CHAIN),
        example(
            step_ms=100, input=8, forward=80, lines=_WORKER, loaders=(_WORKERS,), environment=_TWO_CORES,
            utilization=_BUSY,
        ),
    ),
    quiet_on=(
        example(
            step_ms=100, input=8, forward=80, lines=_WORKER, loaders=(_WORKERS,), environment=_TWO_CORES,
            utilization=_IDLE,
        ),
        example(step_ms=100, input=11, forward=80, lines=_CHAIN[:3]),
        example(step_ms=100, input=14.5, forward=70, lines=_MAIN),
        example(step_ms=100, input=60, forward=30, lines=[line(0.07, _RESIZE, stage="sample")]),
        example(step_ms=100, input=60, forward=30),
        example(step_ms=100, input=60, lines=_LIBRARY, loaders=(replace(_WORKERS, num_workers=0, iterated_at=_LOOP),)),
        example(step_ms=100, input=60, lines=_LIBRARY, loaders=(replace(_WORKERS, iterated_at=_LOOP),)),
    ),
)  # fmt: skip
