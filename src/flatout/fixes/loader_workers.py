"""Make batches in worker processes while the step runs.

## What it does

A `DataLoader` gets workers, or more of them: as many as there are cores, half, a quarter, up to 16 where samples wait.
The first batches are still made in the training process, next to the workers, and compared; then the workers take over.
Samplers draw in the training process, in the script's order; no random stream moves. With `persistent` the workers stay
from one epoch to the next, and are restarted when the data set has changed in between. A loader whose workers cost more
than they bring (IN010) gets none, with `workers=0`.

Random samples of a loader without workers are made ahead, too (unless `predicted = false`). Such samples are drawn from
the script's own streams (Python's, NumPy's, torch's on the CPU, generators that the data set or a transform holds),
between the draws of the training step. Where a batch and a step take the same number of random words each time, it is
known where the streams will stand at the next batches, and each worker begins from there. Where batches take another
number each time, one worker makes one batch after the other, from where it left the streams itself. A batch is taken
only if all streams stand where its worker began; the streams are then set to where the worker left them. Otherwise the
batch is made in the training process. `flatout run` says how many were taken.

A stream (`IterableDataset`) without workers is read ahead by one process, a copy of the script's from before the pass
([streams](../howto/streams.md)). The training process reads the first batch of each pass itself, and some more in the
first one; all of them are compared.

## Why it helps

Making a batch and training on one go on at the same time, on different cores; where samples wait for files, several
wait at once. With two workers set by hand, three scripts of `benchmarks/planted` train 1.44x (`keyword_spotting`),
1.23x (`masked_tokens`) and 1.66x (`pet_photos`) as fast; `clickstream`, whose workers cost more than they bring, trains
1.84x as fast without them (medians of n=3 pairs of runs, 2 cores of an AMD EPYC, torch 2.13;
`python benchmarks/planted.py`). Random samples augmented in plain Python, 72% of each step, train 1.38x as fast
(1.23 to 1.43, n=3 trainings of 96 batches with their start, same machine, while others used it, too;
`python benchmarks/predicted.py`).

## How equal

BITWISE: the same samples in the same batches in the same order, to the last bit. The streams are compared at every
batch of random samples, so a wrong prediction costs time, never a bit; after three in a row nothing is predicted for 16
batches, then for 32, and so on. The first such batches are made both here and in a worker, and compared. Random samples
of a loader that has workers are left alone, since each worker has a stream of its own. If a data set begins to draw
later, that batch is made in the training process, at its turn and from its random state. So is a batch whose worker
dies, hangs or raises; of a stream, all that was delivered of the pass is then read again first, and compared.

## When it is wrong

Left alone: streams that have workers, print, change their data set as they go (but for where a Hugging Face stream is),
or have a `finally` that does more than closing; samplers that are not torch's own; data sets that hold open files,
database handles or tensors on a device, that change, write or ask for their worker while they are read, or hold what
cannot be watched (Pillow images, iterators, writable maps); random samples that draw from OpenCV, a device, the system,
or the generator that the sampler draws from; batches that take less than 0.4 ms (of a stream: 1 ms); start methods
other than fork. `flatout patch` writes nothing for random samples: workers in the source would draw other numbers.
Before each batch the data set is checked for changes ([how](../input.md), 1 to 30 us). Batches that workers made before
a change (of files, too) are made anew in the training process; new workers start with the next pass, and none after
three changes within passes. A loader that had workers gets batches of the data set as it was when the pass began; where
its workers were taken away (`workers=0`) and it changes within a pass, the training stops with the name of what
changed. Not seen: files that compiled code opens under names that the data set does not hold. Some batches are first
made in a copy of the process.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import ON_CHANGE, WORKERS, within
from flatout.fixes.core.edit import LoaderArgument, Unwritten
from flatout.fixes.core.fitness import drawn, no_loader, training_loaders
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site
    from flatout.torch_loader.handover import HandoverPlan
    from flatout.torch_loader.streamed.streamed_loader import StreamPlan

__all__ = ["FIX", "choices", "patch"]

_WAITS = 0.4  # share of a sample on the CPU below which more workers than cores help: as IN012
_MOST_WORKERS = 16
_HARM = 1.2  # a wait this many times the making: workers harm, as IN010
_FEWEST_BATCHES = 6  # a pass this short ends before workers have begun
# Passes of 8, 20 and 50 batches took 10 to 42 ms longer (median 33, n=9) with DataLoader(num_workers=2) than with two
# workers of this fix, which stay; torch 2.13, 2 cores of an AMD EPYC.
_RESTART_S = 0.016


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Return the numbers of workers to try: as many as cores first; none where workers do harm."""
    loaders = [loader for loader in training_loaders(run) if not _must_stay(loader)]
    if not loaders:
        return Unfit(next(map(_must_stay, training_loaders(run)), no_loader(run)))
    loader = max(loaders, key=lambda loader: loader.fetches * (loader.wait_s + loader.sample_s))
    if loader.iterable_style:  # one process reads ahead
        return ({"workers": 1, "persistent": loader.epochs_started > 1, "predicted": True},)
    settings: list[dict[str, object]] = []
    if _harms(loader):
        settings.append({"workers": 0})
    cores = run.environment.num_cpus
    wanted = [min(_MOST_WORKERS, count) for count in (cores, cores // 2, cores // 4)]
    if 0 < loader.sample_cpu_s < _WAITS * (loader.sample_s - loader.sample_queued_s):
        wanted.insert(0, min(_MOST_WORKERS, 4 * cores))
    kept = {"persistent": loader.epochs_started > 1} | ({"predicted": True} if _may_be_random(run) else {})
    more = [count for count in dict.fromkeys(wanted) if count > loader.num_workers and not settings]
    settings.extend({"workers": workers, **kept} for workers in more)
    enough = f"{loader.name or 'the training loader'} has {loader.num_workers} workers on {cores} cores already"
    return tuple(settings[:3]) or Unfit(enough)


def _must_stay(loader: LoaderFacts) -> str:
    """Return why batches cannot be made in other processes, an empty string where they may be."""
    if loader.iterable_style and loader.num_workers:
        name, count = loader.name or "the data set", loader.num_workers
        return f"{name} is an iterable data set, of which {count} workers read a part each: others would read others"
    if loader.iterable_style:
        return ""
    found = drawn(loader) if loader.num_workers else ""  # without, states of the streams can be predicted
    return f"{found}, and other workers would draw other numbers" if found else ""


def _may_be_random(run: Run) -> bool:
    """Return whether samples of a training loader are random, or nobody has looked: written workers would not do."""
    prefixes = [loader.prefix for loader in training_loaders(run)]
    return any(prefix is None or not (prefix.checked and prefix.deterministic) for prefix in prefixes)


def _harms(loader: LoaderFacts) -> bool:
    made_s = loader.sample_s + loader.collate_s
    return loader.num_workers > 0 and 0 < _HARM * made_s < loader.wait_s


def patch(
    site: "Site",
    *,
    workers: int = 2,
    prefetch: int = 2,
    persistent: bool = False,
    predicted: bool = True,
    on_change: str = "stop",
) -> None:
    """Serve loaders that have other numbers of workers by `workers` of them, `prefetch` batches ahead each.

    `predicted`: random samples, too, from predicted states of the random streams.
    """
    from flatout.probe.core.user_places import caller_line
    from flatout.torch_loader.handover import HandoverPlan
    from flatout.torch_loader.streamed.streamed_loader import StreamPlan
    from flatout.torch_loader.worker_origins import WorkerOrigins

    plan = HandoverPlan(
        workers=workers,
        prefetch=prefetch,
        persistent=persistent,
        predict=predicted and workers > 0,
        hit=lambda: site.hit("DataLoader"),
        stand_back=site.stand_back,
        origins=WorkerOrigins(on_change),
        where=caller_line,
    )
    streams = StreamPlan(
        hit=plan.hit,
        stand_back=site.stand_back,
        shares=plan.shares,
        where=caller_line,
        depth=2 * prefetch,
        on_change=on_change,
    )
    site.loaders = plan.shares.all
    site.wrap("torch.utils.data.dataloader:DataLoader.__iter__", functools.partial(_iterating, site, plan, streams))


def _iterating(site: "Site", plan: "HandoverPlan", streams: "StreamPlan", original: Any) -> Any:
    """Return what gives the iterator of a loader, in place of `original`."""
    from flatout.torch_loader.handover import Handover
    from flatout.torch_loader.streamed.stream_pass import walk
    from flatout.torch_loader.streamed.stream_refusal import is_stream, stream_refusal
    from flatout.torch_loader.worker_resizing import WorkerResizing

    def iterate(loader: Any) -> Any:
        if is_stream(loader) and plan.predict and not stream_refusal(loader):
            return walk(loader, streams, original)
        try:
            why = _refusal(loader, plan)
        except Exception as error:  # looking into a data set ran code of the script's
            site.fail(error)
            return original(loader)
        if why:
            site.stand_back(why)
            return original(loader)
        if loader.num_workers:
            resized = WorkerResizing.iterator(loader, plan)
            return original(loader) if resized is None else resized
        iterator = original(loader)
        if type(iterator).__name__ == "_SingleProcessDataLoaderIter":
            Handover(iterator, loader, plan)
        return iterator

    return iterate


def _refusal(loader: Any, plan: "HandoverPlan") -> str:
    """Return why no other workers than those of `loader` may make its batches, by what it is; empty: they may."""
    from torch.utils.data import BatchSampler

    from flatout.torch_loader.predicted.predicted_loader import shares_generator
    from flatout.torch_loader.worker_pool import draws_at_start
    from flatout.watch.dataset_state import in_a_worker, unsafe

    name = f"the loader of {type(loader.dataset).__name__}"
    if not (loader.num_workers < plan.workers or (plan.workers == 0 < loader.num_workers)):
        return f"{name} has {loader.num_workers} workers already"
    if loader in plan.left_alone or in_a_worker():
        return f"{name} was left alone before"
    why = _unusual(loader)
    if why:
        return f"{name} {why}"
    if not draws_at_start(loader._index_sampler):
        own = loader.batch_sampler if type(loader.batch_sampler) is not BatchSampler else loader.sampler
        return f"{name} has a sampler that may draw at each batch ({type(own).__name__})"
    alone = not plan.predict or loader.num_workers > 0
    return unsafe(loader.dataset, loader.collate_fn, generators=alone) or shares_generator(loader)


def _unusual(loader: Any) -> str:
    """Return why `loader` is not one of torch's map-style loaders, long enough, that forks if it starts anything."""
    from torch.utils.data import MapDataPipe

    from flatout.torch_loader.reseeding import only_seeds
    from flatout.torch_loader.streamed.stream_refusal import is_stream, stream_refusal, unusual_start

    if is_stream(loader):
        return stream_refusal(loader) or "reads a stream, which is left as it is"
    if isinstance(loader.dataset, MapDataPipe):
        return "reads a data pipe"
    why = unusual_start(loader)
    if why:
        return why
    if loader.num_workers and (loader.persistent_workers or not only_seeds(loader.worker_init_fn)):
        own = "persistent workers" if loader.persistent_workers else "a worker_init_fn that does more than seeding"
        return f"has {own}"
    try:
        long_enough = len(loader) >= _FEWEST_BATCHES
    except (TypeError, NotImplementedError):
        return "has no length"
    return "" if long_enough else f"has {len(loader)} batches a pass, which end before workers have begun"


FIX = Fix(
    name="loader-workers",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.INPUT,),
    patch=patch,
    bounds={"workers": WORKERS, "prefetch": within(1, 256), "on_change": ON_CHANGE},
    choices=choices,
    addresses=("IN001", "IN002", "IN003", "IN010", "IN012", "IN014", "IN017", "IN018", "EP001"),
    edit=(
        LoaderArgument(name="num_workers", code="{workers}", at_least=True, in_workers=True, restart_s=_RESTART_S),
        Unwritten(
            reason="samples that are random, or may be, are made early from predicted states of the random streams; "
            "workers in the source would draw from others",
            when={"predicted": True},
            where_named=True,
        ),
        Unwritten(
            reason="workers are not kept from one epoch to the next: persistent_workers=True draws one random number "
            "less an epoch, so later epochs would be shuffled differently",
            when={"persistent": True},
            rest=True,
        ),
    ),
)
