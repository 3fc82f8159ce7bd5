"""Serve batches from memory, or make them by operations on whole batches, bit-identical to the script's own.

## What it does

Where the operations of a data set's transform are known (torchvision, both generations), they are applied to whole
batches, many of those on images by compiled code on all cores. What comes before the first random operation is computed
once and kept. Random operations draw for each sample what the script's own would draw, from the same stream (that of
its worker included) and in the same order.

Where nothing is known of a data set except that its samples are the same each time, the first pass is the script's own,
with its own workers, and what it delivers is kept, row by row; from then on a batch is one gather for each of its
parts. Samples that wait for a disk or a network are requested by 64 to 256 threads; where reading a sample is expensive
and the loader has workers, they read the first pass. Where a transform draws in a way that is not known, or the collate
function pads, mixes or draws, and there are no workers, samples are kept as they are before that, and the script's own
functions are called on copies of them. Where `__getitem__` itself draws, and calls a function of the script's that does
at least a third of the work and gives the same for the same names, paths or numbers (`self.load(path)`), what that
gives is kept, and everything else runs as it is written. The sampler, the batch sampler and every other draw from a
random stream stay as they are, so batches hold the same samples in the same order, epoch after epoch.

## Why it helps

Decoding, converting and normalizing sample by sample in Python is repeated in every epoch, and is most of the step in
many scripts; a gather runs at the speed of memory. Nobody waits for workers to start. Under this fix alone, the MNIST
guide's script takes steps 5.6x as fast (5.57 to 6.02, n=5 rounds; 2 cores of an AMD EPYC, torch 2.13;
`python benchmarks/mnist_guide.py`), and victoresque/pytorch-template trains 2.2x as fast (1.39 to 3.37, n=6 pairs, same
machine; `benchmarks/history/outside.jsonl`).

## How equal

BITWISE: the same samples, bits, strides and random states. Before anything is kept, each data set is asked twice for
some samples, from other random states, in a forked copy of the process. Loaders are left unchanged if the data set has
a file open from the start, has a random generator outside of its transform, changes itself when it is read (counts its
calls, for instance), returns different samples when asked twice, or draws random numbers outside of a transform that it
holds, beside nothing slow that is the same each time. Before each batch, all that samples are made from is checked for
changes: attributes, containers, arrays, tensors, globals, files. Where something has changed, the script's own code
makes the batch, from the random state that it would have. A change that is seen too late stops the training
(`docs/input.md`); with `flatout run --on-change warn` it goes on.

## When it is wrong

Where the transform is not known, nothing is gained in the first pass, so a training of one epoch gains nothing. If
workers decode images, the first pass can be slower, because workers only read, and the transforms run in the training
process: for 2,000 JPEG files on 2 cores it took 1.2 times as long as with the best plain loader, and later passes a
ninth (n=2). It takes memory: at most 40% of what is free. The check costs 1 to 10 us a batch, more where a data set is
made of very many small objects. In a trial's timing the store is filled with repeated copies of a few samples, so that
it shows the speed of later epochs without a full first pass; results are compared separately, with the real samples.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import ON_CHANGE
from flatout.fixes.core.edit import WrappedLoader
from flatout.fixes.core.fitness import drawn, no_loader, training_loaders
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a training loader asks a data set for samples by index."""
    if all(map(_without_index, training_loaders(run))):
        return Unfit(next(map(_without_index, training_loaders(run)), no_loader(run)))
    reasons = [_drawn_itself(loader) for loader in run.loaders if not _without_index(loader)]
    return Unfit(reasons[0]) if all(reasons) else ({},)


def _without_index(loader: LoaderFacts) -> str:
    """Return why samples cannot be asked for by index, an empty string where they can be."""
    name = loader.name or "the data set"
    if loader.iterable_style:
        return f"{name} is an iterable data set: it has no samples that can be read by index"
    return "" if loader.num_samples > 0 else f"{name} has no length"


def _drawn_itself(loader: LoaderFacts) -> str:
    """Return why nothing comes out the same each time, an empty string where something may, before a transform."""
    found = drawn(loader)
    kept = loader.prefix is None or loader.prefix.has_transform or loader.prefix.alike or not found
    return "" if kept else f"{found}, so none can be kept"


def patch(site: "Site", on_change: str = "stop") -> None:
    """Serve every pass over a DataLoader from what earlier ones delivered."""
    from flatout.fixes.core.site import say
    from flatout.pipeline.serve.compiled_loader import LoaderCaches
    from flatout.probe.core.user_places import caller_line
    from flatout.watch.dataset_state import in_a_worker

    kept = LoaderCaches(
        purpose=site.purpose,
        hit=lambda: site.hit("DataLoader"),
        on_change=on_change,
        where=caller_line,
        tell=functools.partial(say, site),
    )
    site.loaders = kept.accounts.all

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
        *("IN014", "IN015", "IN016", "IN017", "IN018", "TR003", "EP001"),
    ),
    edit=(WrappedLoader(function="flatout.compile_loader"),),
)
