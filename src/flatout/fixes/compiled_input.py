"""Batches come from memory, or are made by operations on whole batches, with the bits that the script would get.

## What it does

Where the operations of a data set's transform are known (torchvision, both generations), they are done to whole
batches, many of those on images by compiled code on all cores; what comes before the first random one is done once and
kept. Random ones draw for each sample what the script's own would draw, from the same stream and in the same order,
that of its worker included. Where nothing is known of a data set but that its samples are the same each time, the first
pass is the script's own, with its own workers, and what it delivers is kept, row by row; from then on a batch is one
gather for each of its parts. Samples that wait for a disk or a network are asked for by 64 to 256 threads; where
reading one is dear and the loader has workers, they read the first pass. Where a transform draws in a way that is not
known, or the collate function pads, mixes or draws, and there are no workers, samples are kept as they are before that,
and the script's own functions are called on copies of them. The sampler, the batch sampler and every other draw from a
random stream stay as they are, so batches hold the same samples in the same order, epoch after epoch.

## Why it helps

Decoding, converting and normalizing sample after sample in Python is done in every epoch anew, and is most of the step
in many scripts; a gather runs at the speed of memory. Nobody waits for workers to start.

## How equal

BITWISE: the same samples, bits, strides and random states. Each data set is asked twice for some samples, from other
random states, in a forked copy of the process, before anything is kept; what holds a file or a generator, counts its
calls or answers otherwise is left alone, and so is what draws random numbers outside of a transform that the data set
holds. Before each batch it is asked whether all that samples are made from is as it was: attributes, containers,
arrays, tensors, globals, files. Where it is not, the script's own code makes the batch, from the random state that it
would have. What is seen too late stops the training (`docs/input.md`); with `flatout run --on-change warn` it goes on.

## When it is wrong

Where the transform is not known it gains nothing in the first pass, so a training of one epoch gains nothing. Where
workers decode images, the first pass took 1.2 times as long as the best plain loader's (2,000 JPEG, 2 cores, n=2; later
ones a ninth): what they read is kept, and transformed in the training's process. It takes memory: 40% of what is free
at most. Asking costs 1 to 10 us a batch, more where a data set is made of very many small objects.
Trials fill the memory with repeated rows, so that they see the speed of later epochs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import ON_CHANGE
from flatout.fixes.core.edit import WrappedLoader
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a training loader asks a data set for samples by index."""
    return ({},) if any(loader.is_training and _may_be_kept(loader) for loader in run.loaders) else ()


def _may_be_kept(loader: LoaderFacts) -> bool:
    return not loader.iterable_style and loader.num_samples > 0


def patch(site: "Site", on_change: str = "stop") -> None:
    """Serve every pass over a DataLoader from what earlier ones delivered."""
    from flatout.pipeline.serve.compiled_loader import LoaderCaches
    from flatout.watch.random_streams import in_a_worker

    kept = LoaderCaches(purpose=site.purpose, hit=lambda: site.hit("DataLoader"), on_change=on_change)

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
    replaces=(
        *("loader-workers", "persistent-workers", "worker-threads", "core-split", "cached-input"),
        "device-prefetch",  # slower on top of it: 0.89x (0.84 to 0.96, n=4 pairs on an H200)
    ),
    from_second_pass=True,
    bounds={"on_change": ON_CHANGE},
    addresses=(
        *("IN001", "IN002", "IN003", "IN004", "IN006", "IN007", "IN009", "IN010", "IN011", "IN012"),
        *("IN014", "IN015", "IN017", "IN018", "TR003", "EP001"),
    ),
    edit=(WrappedLoader(function="flatout.compile_loader"),),
)
