"""Use another number of threads for training on the CPU.

## What it does

Sets `torch.set_num_threads(threads)`: one, half the cores (one thread for each physical core where a core runs two),
or all of them, whichever the script does not use now. A number that the script sets meanwhile is remembered and set
when the fix is switched off.

## Why it helps

Small operations lose more in starting and joining threads than they gain; on cores that run two threads each, two heavy
ones share one set of vector units; and `OMP_NUM_THREADS=1`, as many launchers set it, leaves cores unused.
`ocean_currents` of `benchmarks/planted` computes on one thread; with two it trains 1.69x as fast (changed by hand;
median of n=3 pairs of runs, 2 cores of an AMD EPYC, torch 2.13; `python benchmarks/planted.py`). The other way round, a
small ResNet with one thread in place of two was slower, 0.60x in the fix's trial (0.56 to 0.63, n=4 pairs, same
machine; `python benchmarks/cpu_resnet.py`).

## How equal

ROUNDING: large sums are split into as many parts as there are threads, and so summed in another order.

## When it is wrong

Only for training on the CPU. The threads of other libraries follow `OMP_NUM_THREADS`, which stays as it is; loader
workers have their own setting. The system decides which cores the threads run on: a process bound to its cores would
pass that on to its loader workers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import THREADS
from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer all cores, or a rank's share of them, half of that and one, without the number in use."""
    if run.environment.device_kind != "cpu":
        return Unfit(f"the training computes on {run.environment.device_kind}, not on the CPU")
    cores = run.environment.num_cpus
    share = max(1, cores // max(1, len({rank.rank for rank in run.ranks})))
    counts = dict.fromkeys((share, max(1, share // 2), 1))
    others = tuple({"threads": count} for count in counts if count != run.environment.torch_threads)
    return others or Unfit("there is one core, and one thread is in use")


def patch(site: "Site", *, threads: int) -> None:
    """Use `threads` threads in torch's operations while the fix is switched on."""
    from threading import get_ident

    import torch

    from flatout.watch.dataset_state import in_a_worker

    set_threads, thread = torch.set_num_threads, get_ident()
    asked: list[int] = []  # what the script has asked for

    def make(original: Any) -> Any:
        def call(number: int) -> None:
            if get_ident() != thread or in_a_worker():  # a loader's worker, the thread that pins its batches
                original(number)
                return
            asked[:] = [number]
            if number != threads:
                site.hit("set_num_threads")
            original(threads)

        return call

    def on() -> None:
        asked[:] = [torch.get_num_threads()]
        if asked[0] != threads:
            set_threads(threads)
            site.hit("set_num_threads")
        else:
            site.stand_back(f"torch computes with {threads} thread{'s' if threads != 1 else ''} already")

    def off() -> None:
        if asked and torch.get_num_threads() == threads != asked[0]:
            set_threads(asked[0])
        asked.clear()

    site.wrap("torch:set_num_threads", make)
    site.switch(on, off)


FIX = Fix(
    name="cpu-threads",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER),
    patch=patch,
    bounds={"threads": THREADS},
    choices=choices,
    addresses=("CO007", "DI002"),
    switchable=True,
    edit=(SwitchLine(code="torch.set_num_threads({threads})", stands_for="torch.set_num_threads"),),
)
