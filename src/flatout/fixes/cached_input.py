"""Keep samples that come out the same each time on disk, so that the next training has them from its first batch on.

## What it does

All that `compiled-input` does. In addition, once every sample is there, a thread writes them to `.flatout/cache` in the
folder that the training was started in. The next training maps that file and gathers its batches from it, from the
first one on; several processes of one machine share its pages. What does not fit into memory goes into a file in the
first pass.

## Why it helps

A training that is being tried out is started again and again, and waits for the same images to be decoded each time.
Where samples take longer to make than to read, that cost is paid once. The first pass over 1,000 JPEG files (384x384,
resized to 96x96, loaded without a training) was 6.2x as fast where an earlier process had saved the samples (5.2 to
11.2, n=5 pairs of starts; 2 cores of an Intel Xeon under KVM, torch 2.13, beside other programs).

## How equal

BITWISE: as `compiled-input`. Samples are stored under a key of everything that they depend on: the code of data set,
transform and collate function, all their state, package versions, and size, times and inode number of every file that
they name. The key is computed before the first sample and again before anything is saved; what changed meanwhile is not
saved. What an earlier training saved is read in full and compared with its checksums, then a few samples are compared
with those of the data set. The key is computed anew from time to time while the training runs. Nothing in the file is
executed.

## When it is wrong

The key holds only what code and state name. Not in it: environment variables, the command line, the current folder, the
number of threads, the network, settings of packages that were changed after their import. The first batch waits until
the key and the checksums are computed. A data set without a key (it holds a generator or a handle, or changes as it is
read) is kept in memory only. The folder takes up to 20 GB, or half of what is free on the disk if that is less;
deleting it is always safe. Ranks that each see a part of the samples never have them all, and save nothing. It is tried
only where the first pass takes 20 s or longer. Trials write nothing to disk, and show the speed of later epochs as
`compiled-input` does: they see no difference between the two.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import FOLDER, ON_CHANGE
from flatout.fixes.core.edit import WrappedLoader
from flatout.fixes.core.fitness import drawn, no_loader, training_loaders
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, Run
from flatout.schema.trial import Equivalence
from flatout.units import format_seconds

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_MIN_FIRST_PASS_S = 20.0
_MIN_CHECKED = 2


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where making all samples of a training loader takes a while, and nothing about them is random."""
    reasons = [_not_worth_it(loader) for loader in training_loaders(run)] or [no_loader(run)]
    return Unfit(reasons[0]) if all(reasons) else ({},)


def _not_worth_it(loader: LoaderFacts) -> str:
    """Return why samples are not kept on disk, an empty string where they may be."""
    prefix, name = loader.prefix, loader.name or "the data set"
    if loader.iterable_style:
        return f"{name} is an iterable data set: it has no samples that can be read by index"
    if prefix is None or prefix.checked < _MIN_CHECKED:
        return f"whether samples of {name} are the same each time is not known"
    if drawn(loader):
        return f"{drawn(loader)}, so none can be kept"
    if prefix.shares_memory:
        return f"samples of {name} lie in memory already"
    whole_s = prefix.seconds * loader.num_samples
    short = f"making all {loader.num_samples:,} samples takes {format_seconds(whole_s)}, less than "
    return "" if whole_s > _MIN_FIRST_PASS_S else f"{short}{_MIN_FIRST_PASS_S:.0f} s"


def patch(site: "Site", folder: str = ".flatout/cache", on_change: str = "stop") -> None:
    """Serve every pass over a DataLoader from what earlier ones, or earlier trainings, delivered."""
    from flatout.fixes.core.site import say
    from flatout.pipeline.serve.compiled_loader import LoaderCaches
    from flatout.probe.core.user_places import caller_line
    from flatout.watch.dataset_state import in_a_worker

    place = Path(folder).absolute() if site.purpose == "run" else None  # a trial's files would be taken for results
    linked = next((part for part in (Path(folder), *Path(folder).parents) if part.is_symlink()), None)
    if linked is not None and not Path(folder).is_absolute():  # whoever made it decides what is written and removed
        raise RuntimeError(f"{linked} is a link, so samples would be kept outside this folder; name a real one")
    kept = LoaderCaches(
        purpose=site.purpose,
        hit=lambda: site.hit("DataLoader"),
        folder=place,
        on_change=on_change,
        where=caller_line,
        tell=functools.partial(say, site),
    )
    site.loaders = kept.accounts.all

    def make(original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            return original(loader) if in_a_worker() else kept.walk(loader, original)

        return iterate

    site.wrap("torch.utils.data.dataloader:DataLoader.__iter__", make)
    site.switch(lambda: kept.lead(True), lambda: kept.lead(False))


FIX = Fix(
    name="cached-input",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.INPUT,),
    patch=patch,
    bounds={"folder": FOLDER, "on_change": ON_CHANGE},
    choices=choices,
    replaces=("loader-workers", "persistent-workers", "worker-threads", "core-split", "compiled-input"),
    from_second_pass=True,
    addresses=("IN003", "IN007", "IN015"),
    edit=(WrappedLoader(function="flatout.compile_loader", arguments='folder="{folder}"'),),
)
