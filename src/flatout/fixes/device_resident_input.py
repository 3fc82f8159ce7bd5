"""Make batches on the device and keep them there; fetch them to the CPU only where the script looks at them.

## What it does

As `compiled-input`, with one difference: where the samples fit into a quarter of the device's free memory, they are
kept there, and batches are gathered on the device. Where they do not fit, what is kept on the CPU is copied from pinned
memory on a stream of its own, one batch ahead. Where the last operations treat bytes one by one (to tensor, convert,
normalize), bytes are kept and copied, and a table of 256 values, made on the CPU by the operations themselves, converts
them to numbers on the device. Once all samples are there, these numbers replace the bytes, if they take no more than
half of the room that is left. The script's `.to(device)` or `.cuda()` then returns a copy of what is there already.

The script still gets a batch on the CPU. From the first two batches the fix learns which tensors are asked for on the
device. From then on those have no values at first: they give type, shape and strides, and become ordinary tensors,
values fetched from the device, the moment that the script does anything else with them. If that has happened once at a
place in the batch, this place is filled at once from then on, and copied as the script says.

## Why it helps

What remains of the input is a gather at the speed of the device's memory; the CPU does not touch the pixels, and the
step does not wait for a copy. Measured on an H200: ResNet-18, images of 32x32 resized to 224, batch 32, 4.6x (4.2 to
5.0, n=12 pairs; `benchmarks/ladder.py`). That is 95% of the rate with a batch that never leaves the device, and 97%
with a compiled model (n=12 pairs of epochs).

## How equal

BITWISE: gathers, copies and tables do no arithmetic, so bits, strides and types are those of the CPU. Every request is
answered with a tensor of its own. What is kept is checked and proven as in `compiled-input`; what that leaves alone is
left alone here, too.

## When it is wrong

Needs CUDA, one device per process, in use before the loader is iterated. It takes device memory: a quarter of what is
free when the first batch is made, and three batches. Until the script looks at it, a tensor of a batch is of a
subclass: `isinstance` still holds, `type(x) is torch.Tensor` does not. A function under `torch.compile` or
`torch.jit.trace` that is given such a CPU tensor, and not its copy, fails. A script that looks at its batches on the
CPU gains less than with `compiled-input`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flatout.fixes import compiled_input
from flatout.fixes.core.bounds import KIND, ON_CHANGE
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fitness import off_cuda
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site
    from flatout.pipeline.device.device_pass import Begun

__all__ = ["FIX", "choices", "patch"]

_LEARN_FROM = 2  # batches


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a training loader that may be kept feeds a CUDA device."""
    why = off_cuda(run)
    return Unfit(why) if why else compiled_input.choices(run)


def patch(site: "Site", *, kind: str = "cuda", on_change: str = "stop") -> None:
    """Serve batches from a device of that kind; "cpu" stands for one in the CPU's memory, to see what it does."""
    import torch

    if kind == "cuda" and not torch.cuda.is_available():
        site.stand_back("there is no CUDA device")
        return
    served = _Served(site, kind, on_change)
    site.wrap("torch.utils.data.dataloader:DataLoader.__iter__", served.walks)
    site.wrap("torch:Tensor.to", lambda original: served.copies(original, "to"))
    site.wrap("torch:Tensor.cuda", lambda original: served.copies(original, "cuda"))
    site.switch(lambda: served.lead(True), lambda: served.lead(False))


class _Places:
    """Places in the batches of one loader: asked for on the device, or looked at on the CPU."""

    def __init__(self) -> None:
        self.asked: set[object] = set()
        self.touched: set[object] = set()
        self.seen = 0


class _Served:
    """The passes over loaders, and what the script does with their batches."""

    def __init__(self, site: "Site", kind: str, on_change: str) -> None:
        import weakref

        from flatout.fixes.core.site import say
        from flatout.pipeline.device.device_stream import DeviceStream
        from flatout.pipeline.serve.compiled_loader import LoaderCaches
        from flatout.probe.core.user_places import caller_line
        from flatout.torch_loader.batch_copies import Marked

        self._site, self._kind = site, kind
        self._device = DeviceStream(kind)
        hit = partial(site.hit, "DataLoader")
        self._kept = LoaderCaches(
            purpose=site.purpose,
            hit=hit,
            device=self._device,
            on_change=on_change,
            where=caller_line,
            tell=partial(say, site),
        )
        site.loaders = self._kept.accounts.all
        self._places: Any = weakref.WeakKeyDictionary()  # cache -> places in its batches
        self._learning = Marked()  # tensors in the script's hands -> (places, their place)
        self.lead = self._kept.lead

    def walks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Serve every pass whose batches are made from what is kept."""
        from flatout.pipeline.device.device_pass import begin_ahead
        from flatout.torch_loader.served_pass import ServedPass
        from flatout.watch.dataset_state import in_a_worker

        def iterate(loader: Any) -> Any:
            if in_a_worker() or not self._ready() or self._kept.others_lead():
                if not self._ready():
                    self._site.stand_back("the device was not in use yet when the loader was iterated")
                return original(loader)
            walked, cache = self._kept.walk(loader, original), self._kept.of(loader)
            if isinstance(walked, ServedPass):
                places, pinned = self._places.setdefault(cache, _Places()), bool(walked._pin_memory)
                begin_ahead(walked, self._device, cache, lambda begun: self._batch(begun, places, pinned))
            return walked

        return iterate

    def _ready(self) -> bool:
        """Return whether the device is in use; one that the script does not use yet is not woken up for it."""
        import torch

        return self._kind != "cuda" or torch.cuda.is_initialized()

    def _batch(self, begun: "Begun", places: _Places, pinned: bool) -> Any:
        """Return the batch of the CPU that the script gets for one whose tensors are on the device."""
        import torch
        from torch.utils.data._utils.pin_memory import pin_memory

        from flatout.pipeline.device.batch_tensors import replaced
        from flatout.pipeline.device.device_stream import Arrived
        from flatout.pipeline.device.lazy_tensor import LazyTensor
        from flatout.torch_loader.batch_copies import tensors_at

        batch, event, again = begun.batch, begun.event, begun.again
        paths = {id(tensor): path for path, tensor in tensors_at(batch) if tensor.device == self._device.device}
        known, places.seen = places.seen >= _LEARN_FROM, places.seen + 1
        self._learning.clear()

        def change(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or leaf.device != self._device.device:
                return leaf
            path = paths.get(id(leaf))
            anew = None if again is None or path is None else partial(self._again, again, path)
            twin = Arrived(leaf, event, anew).twin(self._device, pinned, lambda: places.touched.add(path))
            if known and path in places.asked - places.touched:
                return LazyTensor(leaf, twin)
            plain = self._device.fetched(leaf, pinned)
            if not known and path is not None:
                self._learning.put(plain, (places, path))
            return plain

        if not paths:
            return pin_memory(batch) if pinned else batch
        return replaced(batch, change)

    def _again(self, gather: Callable[[], Any], path: tuple[object, ...]) -> tuple[Any, Any]:
        from flatout.torch_loader.batch_copies import tensors_at

        return dict(tensors_at(gather()))[path], self._device.event()

    def copies(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Answer what is on the device already."""
        from torch.compiler import is_dynamo_compiling

        from flatout.pipeline.device.lazy_tensor import LazyTensor
        from flatout.torch_loader.batch_copies import asked_device

        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling():
                return original(tensor, *args, **kwargs)
            late, learned = type(tensor) is LazyTensor, self._learning.get(tensor)
            if (late or learned is not None) and asked_device(name, args, kwargs) == self._device.device:
                if late:
                    self._site.hit("there already")
                    return tensor.there()
                learned[0].asked.add(learned[1])
            return original(tensor, *args, **kwargs)

        return copy


FIX = Fix(
    name="device-resident-input",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.INPUT, Phase.TRANSFER),
    patch=patch,
    bounds={"kind": KIND, "on_change": ON_CHANGE},
    choices=choices,
    replaces=(
        "loader-workers",
        "persistent-workers",
        "worker-threads",
        "core-split",
        "compiled-input",
        "cached-input",
        "device-prefetch",
        "pinned-copy",
    ),
    from_second_pass=True,
    addresses=("IN001", "TR001", "TR002", "TR003"),
    edit=(
        Unwritten(reason="batches that stay on the device until they are read cannot be written as lines of a script"),
    ),
)
