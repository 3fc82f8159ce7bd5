"""Samples that come out the same each time are made once; from then on batches are gathered from memory.

## What it does

The first pass over a `DataLoader` is the script's own, with its own workers; what it delivers is kept, row by row. From
the pass on in which everything is there, a batch is one gather for each of its parts. The sampler, the batch sampler
and every draw from a random stream stay as they are, so batches hold the same samples in the same order, epoch after
epoch, whatever number of workers the script asked for. Nobody waits for workers to start, and they stop.

## Why it helps

Decoding, converting and normalizing sample after sample in Python is done in every epoch anew, and is most of the step
in many scripts; a gather runs at the speed of memory.

## How equal

BITWISE: the same samples, bits, strides and random states. Each data set is asked twice for some samples, from other
random states, before anything is kept; what draws random numbers, holds a file or a generator, counts its calls or
answers otherwise is left alone. What is kept is compared with the data set at the start of each pass and now and then
in it; at the first difference the script's own loader goes on.

## When it is wrong

It gains nothing in a first pass, so a training of one epoch gains nothing. It takes memory: 40% of what is free at
most, and a data set that needs more is left alone. A file that changes during the training is noticed only when one of
its samples is compared. Trials fill the memory with repeated rows, so that they see the speed of later epochs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a training loader asks a data set for samples by index and nothing was seen to be random."""
    return ({},) if any(loader.is_training and _may_be_kept(loader) for loader in run.loaders) else ()


def _may_be_kept(loader: LoaderFacts) -> bool:
    random = loader.prefix is not None and loader.prefix.checked > 0 and not loader.prefix.deterministic
    return not loader.iterable_style and loader.num_samples > 0 and not random


def patch(site: "Site") -> None:
    """Serve every pass over a DataLoader from what earlier ones delivered."""
    from flatout.pipeline.compiled import Kept
    from flatout.pipeline.dataset_state import in_a_worker

    kept = Kept(purpose=site.purpose, hit=lambda: site.hit("DataLoader"))

    def make(original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            return original(loader) if in_a_worker() or kept.others_lead() else kept.walk(loader, original)

        return iterate

    site.wrap("torch.utils.data.dataloader:DataLoader.__iter__", make)


FIX = Fix(
    name="compiled-input",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.INPUT,),
    patch=patch,
    choices=choices,
    addresses=(
        *("IN001", "IN002", "IN003", "IN004", "IN006", "IN007", "IN009", "IN010", "IN011", "IN012"),
        "EP001",
    ),
)
