"""Keep the device's copy of a tensor that is copied there again and again, unchanged.

## What it does

`mask.to(device)` and `mask.cuda()` of a tensor on the CPU that was copied three times without having changed are
answered by a copy of the copy, made on the device: everybody gets memory of his own. Before each answer it is looked
whether the tensor is the same one, whether torch has written to it, and whether the kernel has seen its memory written
(by numpy, by C code). 256 copies of 256 MiB in all are kept.

## Why it helps

A copy from pageable memory makes the host wait until the device has done all before it. The gain is not measured yet:
on an H200 a script with four constant masks trained 1.69 times as fast (1.65 to 1.72, n=3) with the masks kept on the
device by hand.

## How equal

BITWISE: a copy on the device has the same bits. Now and then, in 0.3% of the time, the copy is made all the same and
compared; a difference stops the training, or ends the fix with a warning (`on_change="warn"`).

## When it is wrong

Tensors that ask for gradients, lie in pinned or shared memory, or are copied with another type are left alone, and so
is every copy on another stream than the first, on other threads, in compiled code, and while a CUDA graph is captured.
What is kept takes memory of the device. Systems that do not tell which pages of memory were written keep only small
tensors. In your own code, make such a tensor a buffer of the module: `register_buffer`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flatout.fixes.core.bounds import KIND, ON_CHANGE
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fitness import off_cuda
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_LEAST = 4  # copies of an unchanged tensor that the recording must have seen at a place


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where the recording saw unchanged tensors copied to a CUDA device."""
    why = off_cuda(run)
    if why:
        return Unfit(why)
    copies = run.causes.transfers if run.causes else ()
    found = any(copy.direction == "to_device" and copy.repeats >= _LEAST for copy in copies)
    return ({},) if found else Unfit("no tensor was seen to be copied to the device again without having changed")


def patch(site: "Site", *, kind: str = "cuda", on_change: str = "stop") -> None:
    """Answer copies to devices of that kind from what is kept there; "cpu" stands for one in the CPU's memory."""
    import torch

    from flatout.fixes.core.kept_reports import reports_of
    from flatout.kept.kept_copies import KeptCopies

    if kind == "cuda" and not torch.cuda.is_available():
        site.stand_back("there is no CUDA device")
        return

    copies = KeptCopies(kind, reports_of(site, on_change), lambda: site.hit("there already"))
    site.wrap("torch:Tensor.to", lambda original: copies.copying("to", original))
    site.wrap("torch:Tensor.cuda", lambda original: copies.copying("cuda", original))
    site.wrap("torch.utils:swap_tensors", copies.swapping, always=True)


FIX = Fix(
    name="kept-copies",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.TRANSFER,),
    patch=patch,
    choices=choices,
    bounds={"kind": KIND, "on_change": ON_CHANGE},
    addresses=("TR004",),
    switchable=True,
    edit=(Unwritten(reason="whether a tensor changes must be watched: make it a buffer of the module"),),
)
