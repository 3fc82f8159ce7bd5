"""Put batches in pinned memory and copy them to the device without waiting.

## What it does

Loaders hand out pinned memory (`pin_memory=True`), and `.to(device)` or `.cuda()` on a tensor that a loader handed out
is made with `non_blocking=True`.

## Why it helps

From pageable memory the driver copies a batch twice, and the call returns only when that is done. From pinned memory
the device fetches the batch by itself while the host goes on. Its gain is not measured yet. A bound is known: in a
recording of `benchmarks/ladder/train.py` on an H200, pageable copies took 7.5% of the step, at most 1.08x (n=84 steps,
`flatout explain TR001`).

## How equal

BITWISE: the same bytes arrive, in the order of the stream.

## When it is wrong

Needs CUDA; tried on one H200 (`make test-gpu`, torch 2.11). A script that writes into the batch on the CPU right after
copying it would change what the device receives; loaders make fresh batches, so that is rare. Only tensors that come
straight out of a loader (no slices of them) are copied without waiting. Pinning costs a copy on the host and memory
that cannot be paged out.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import CopyArgument, LoaderArgument
from flatout.fixes.core.fitness import no_loader, off_cuda, training_loaders
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a loader feeds a CUDA device."""
    why = off_cuda(run) or ("" if training_loaders(run) else no_loader(run))
    return Unfit(why) if why else ({},)


def patch(site: "Site") -> None:
    """Pin what loaders hand out, and do not wait for its copies."""
    from torch.compiler import is_dynamo_compiling

    from flatout.fixes.core.pinned_loaders import pin_loaders
    from flatout.torch_loader.batch_copies import Marked, asked_device, tensors_at

    fresh = Marked()

    def following(original: Any) -> Any:
        def call(iterator: Any) -> Any:
            batch = original(iterator)
            for _, tensor in tensors_at(batch):
                if tensor.device.type == "cpu" and tensor.is_pinned():
                    fresh.put(tensor, True)
            return batch

        return call

    def copying(name: str) -> Any:
        def make(original: Any) -> Any:
            def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if is_dynamo_compiling() or not fresh.get(tensor) or _says_itself(site, kwargs):
                    return original(tensor, *args, **kwargs)
                device = asked_device(name, args, kwargs)
                if device is None or device.type != "cuda":
                    return original(tensor, *args, **kwargs)
                site.hit("non_blocking")
                return original(tensor, *args, **kwargs, non_blocking=True)

            return copy

        return make

    pin_loaders(site)
    site.wrap("torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", following)
    site.wrap("torch:Tensor.to", copying("to"))
    site.wrap("torch:Tensor.cuda", copying("cuda"))


def _says_itself(site: "Site", kwargs: Mapping[str, Any]) -> bool:
    """Return whether the script says whether a copy waits."""
    if "non_blocking" not in kwargs:
        return False
    if not site.stood_back:
        site.stand_back("the script's own copies say whether they wait")
    return True


FIX = Fix(
    name="pinned-copy",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.TRANSFER, Phase.INPUT),
    patch=patch,
    choices=choices,
    addresses=("TR001", "TR002"),
    edit=(LoaderArgument(name="pin_memory", code="True"), CopyArgument()),
)
