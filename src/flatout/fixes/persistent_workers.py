"""Keep loader workers from one epoch to the next, with every random stream as it was.

## What it does

A `DataLoader` with workers keeps them. Each pass draws from the training process's random stream what it drew before,
and the workers' own streams are seeded from it exactly as those of new workers; `persistent_workers=True` by hand
draws one number less for each epoch and lets the workers' streams run on.

## Why it helps

Ending and starting workers takes 0.07 to 0.20 s an epoch by fork (two workers), and seconds where they are spawned and
import torch again; the first batch comes only after that. With `persistent_workers=True` set by hand, two scripts of
`benchmarks/planted` train 1.61x (`fold_training`) and 1.42x (`intent_classifier`) as fast (medians of n=3 pairs of
runs, 2 cores of an AMD EPYC, torch 2.13; `python benchmarks/planted.py`).

## How equal

BITWISE, also for data sets that draw random numbers: every worker begins a pass with the seeds a new one would have.
Workers that read a part each of a stream (`get_worker_info()`) begin their part anew.

## When it is wrong

New workers start with the data set as it is in the training process. Workers are therefore restarted when anything
that samples are made from has changed there ([how it is seen](../input.md)), has changed in a worker (a cache, a
counter; but not a file or an array that its first batch has opened), was drawn at the first batch and kept, or when a
file that was read then has been replaced. Left alone: data sets whose samples depend on which one was made first;
data pipes; a `worker_init_fn` that does more than seeding; data sets with a random generator of their own, or
that hold what cannot be watched (Pillow images, iterators, writable maps); two passes at once; loaders whose workers
could not stay at three passes in a row.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a training loader started its workers more than once."""
    restarts = any(
        loader.is_training and loader.num_workers and not loader.persistent_workers and loader.epochs_started > 1
        for loader in run.loaders
    )
    return ({},) if restarts else Unfit("no training loader started its workers more than once")


def patch(site: "Site") -> None:
    """Keep the workers of every loader that has some and would end them."""
    from flatout.torch_loader.kept_workers import KeptWorkers
    from flatout.torch_loader.reseeding import only_seeds
    from flatout.watch.dataset_state import holds_generator, in_a_worker

    pools = KeptWorkers(lambda: site.hit("DataLoader"))

    def refusal(loader: Any) -> str:
        from torch.utils.data import IterDataPipe, MapDataPipe

        if in_a_worker():
            return "is read in a worker"
        if not loader.num_workers or loader.persistent_workers:
            return "has persistent workers already" if loader.num_workers else "has no workers"
        if isinstance(loader.dataset, IterDataPipe | MapDataPipe):
            return "is read through data pipes, which are seeded in a way of their own"
        if not only_seeds(loader.worker_init_fn):
            return "has a worker_init_fn that does more than seeding"
        return "holds a random generator" if holds_generator(loader.dataset, loader.collate_fn) else ""

    def make(original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            try:
                why = refusal(loader)
                served = not why and pools.may_serve(loader)
                if not served and not site.stood_back:
                    why = why or pools.refused.get(loader, "is left alone")
                    site.stand_back(f"the loader of {type(loader.dataset).__name__} {why}")
            except Exception as error:  # looking into a data set ran code of the script's
                site.fail(error)
                served = False
            return pools.iterator(loader) if served else original(loader)

        return iterate

    site.wrap("torch.utils.data.dataloader:DataLoader.__iter__", make)


FIX = Fix(
    name="persistent-workers",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.EPOCH_GAP, Phase.INPUT),
    patch=patch,
    choices=choices,
    addresses=("IN009",),
    edit=(
        Unwritten(
            reason="persistent_workers=True draws one random number less an epoch, so later epochs would be shuffled "
            "differently"
        ),
    ),
)
