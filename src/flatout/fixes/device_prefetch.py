"""Copy the next batch to the device while the step before it runs.

## What it does

From the first two batches it learns which tensors the script sends to the device. From then on it takes one batch ahead
from the workers and copies those tensors on a stream of their own; the script's `.to(device)` then returns the copy
that is already there. The batch itself stays where it was: a script that also reads it on the CPU finds it unchanged.

## Why it helps

The copy overlaps with computation, and the device need not wait for it at the beginning of a step. Its gain is not
measured yet.

## How equal

BITWISE: the same bytes. A tensor that was written to after it was taken, or that is asked for in another type, is
copied as the script says. Errors of the data set are raised at their batch.

## When it is wrong

Needs CUDA, and a loader with workers: without them, the batch would be made earlier, and random numbers drawn in
another order. On one H200 it was slower where `compiled-input` makes the batches (0.89x, 0.84 to 0.96, n=4 pairs): it
is not tried on top of that. It holds one more batch on the device. It does not act on a batch generator written by
hand.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import KIND
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fitness import no_loader, off_cuda, training_loaders
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a training loader feeds a CUDA device."""
    why = off_cuda(run) or ("" if training_loaders(run) else no_loader(run))
    return Unfit(why) if why else ({},)


def patch(site: "Site", *, kind: str = "cuda") -> None:
    """Copy batches ahead to devices of that kind; "cpu" makes the same copies in memory, to see what it does."""
    import torch

    from flatout.fixes.core.pinned_loaders import pin_loaders

    if kind == "cuda":
        if not torch.cuda.is_available():
            site.stand_back("there is no CUDA device")
            return
        pin_loaders(site)
    prefetch = _Prefetch(site, kind)
    site.wrap("torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", prefetch.follows)
    site.wrap("torch:Tensor.to", lambda original: prefetch.copies(original, "to"))
    site.wrap("torch:Tensor.cuda", lambda original: prefetch.copies(original, "cuda"))


class _Prefetch:
    """The passes over loaders, and what the script copies of them."""

    def __init__(self, site: "Site", kind: str) -> None:
        import weakref

        from flatout.torch_loader.lookahead import TransferStreams

        self._site = site
        self._kind = kind
        self._streams = TransferStreams()
        self._wanted: Any = weakref.WeakKeyDictionary()  # sampler -> what is copied of its batches
        self._pass: Any = None  # the one begun last

    def follows(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Look ahead in every pass over a loader with workers, from its first batch on."""

        def call(iterator: Any) -> Any:
            if not getattr(iterator, "_num_yielded", 1):  # also when torch begins another pass with the same iterator
                self._begin(iterator)
            return original(iterator)

        return call

    def _begin(self, iterator: Any) -> None:
        from flatout.torch_loader.lookahead import Lookahead, Peeking, Wanted
        from flatout.torch_loader.worker_pool import draws_at_start

        sampler = iterator._index_sampler
        source = getattr(iterator, "_batches", None)  # of workers that another fix has put there
        if source is None and type(iterator).__name__ == "_MultiProcessingDataLoaderIter":
            source = Peeking(iterator)
        if source is None or not draws_at_start(sampler):
            why = "has no workers that make batches ahead"
            why = why if source is None else f"has a sampler of another kind than torch's ({type(sampler).__name__})"
            self._site.stand_back(f"a loader {why}")
            return
        wanted = Wanted()
        with contextlib.suppress(TypeError):  # a list has no weak references: it is learned anew each pass
            wanted = self._wanted.setdefault(sampler, wanted)
        self._pass = Lookahead(source, wanted, self._streams)
        iterator._next_data = self._pass.next_data

    def copies(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Answer a copy that was made ahead."""
        from torch.compiler import is_dynamo_compiling

        from flatout.torch_loader.batch_copies import asked_device

        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._pass is None or is_dynamo_compiling() or tensor.device.type != "cpu":
                return original(tensor, *args, **kwargs)
            device = asked_device(name, args, kwargs)
            there = self._pass.asked(tensor, device) if device is not None and device.type == self._kind else None
            if there is None:
                return original(tensor, *args, **kwargs)
            self._site.hit("copied ahead")
            return there

        return copy


FIX = Fix(
    name="device-prefetch",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.TRANSFER, Phase.INPUT),
    patch=patch,
    bounds={"kind": KIND},
    choices=choices,
    addresses=("IN001", "TR001", "TR002"),
    edit=(Unwritten(reason="it learns from the first two batches what to copy ahead"),),
)
