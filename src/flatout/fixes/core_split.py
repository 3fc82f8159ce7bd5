"""Give some cores to loading and the others to computing, instead of letting both compete for all of them.

## What it does

Gives the script's training loader `workers` processes, as `loader-workers` does, and torch's operations the `threads`
cores that are left, as `cpu-threads` does. Both are applied together or not at all.

## Why it helps

A training on the CPU computes with as many threads as there are cores. Workers on top of that make more threads than
cores: each parallel region then waits for a thread that has no core, and neither change alone brings anything. On the
bundled demo (2 cores, batches of 64 images decoded by PIL), whole trainings of 6 epochs took 8.0 and 8.2 s as they are,
8.1 to 8.4 s with two workers, and 7.3 and 7.0 s with one worker and one thread: 1.13x as fast (n=2 each, torch 2.13, of
which 3 s are start-up).

## How equal

ROUNDING: the same batches in the same order, but sums are split among another number of threads.

## When it is wrong

Where loading takes little of a step, one core less for computing costs more than it gains: the trial shows that.
All that is said of `loader-workers` and `cpu-threads` holds here too.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flatout.fixes import cpu_threads, loader_workers
from flatout.fixes.core.bounds import THREADS, WORKERS
from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fitness import training_loaders
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer half of the cores for loading, then one, then all but one, where loading has no processes yet."""
    cores = run.environment.num_cpus
    loading = training_loaders(run)
    if run.environment.device_kind != "cpu" or cores < 2:
        return Unfit("it splits the cores of a training on the CPU" if cores >= 2 else "there is one core only")
    if any(each.num_workers for each in loading):
        return Unfit(f"the training loader has {max(each.num_workers for each in loading)} workers already")
    of_workers = loader_workers.choices(run)
    if not of_workers:
        return of_workers
    counts = dict.fromkeys((cores // 2, 1, cores - 1))
    kept = {name: value for name, value in of_workers[0].items() if name != "workers"}
    return tuple({"workers": count, "threads": cores - count, **kept} for count in counts)


def patch(site: "Site", *, workers: int, threads: int, persistent: bool = False, predicted: bool = True) -> None:
    """Load with `workers` processes and compute with `threads` threads while the fix is switched on."""
    loader_workers.patch(site, workers=workers, persistent=persistent, predicted=predicted)
    cpu_threads.patch(site, threads=threads)


FIX = Fix(
    name="core-split",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER),
    patch=patch,
    bounds={"workers": WORKERS, "threads": THREADS},
    choices=choices,
    addresses=("IN001", "IN002"),
    edit=(
        *loader_workers.FIX.edit,
        SwitchLine(code="torch.set_num_threads({threads})", stands_for="torch.set_num_threads"),
    ),
)
