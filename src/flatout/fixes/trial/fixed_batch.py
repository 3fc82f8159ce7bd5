"""Give every step the same batch: what the script would do if its input took no time. A ceiling, not a cure.

A training pass asks its loader and gets, again and again, the batch that came first. What a step takes then is the most
that any change of the input can give. Trials of a diagnosis switch it on and off in turns; no recipe can hold it.
"""

import copy
import weakref
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["HELD_BATCH", "patch"]

_MOST_GIVEN = 5000  # times that what is held is given in one pass, where nobody knows how long it is


def patch(site: "Site", *, place: str = "host") -> None:
    """Hold the batch of every pass that is under way: as the loader gives it, "pinned", or at "device" as it is copied.

    A pass hands out as many batches as it would; the loader's own stay where they are. One whose length nobody knows
    goes on after what is held, and gets that in a training alone: a validation would not end.
    """
    held = _Held(site, pinned=place == "pinned")
    site.wrap("torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", held.follows)
    if place == "device":
        site.wrap("torch:Tensor.to", lambda original: held.copies(original, "to"))
        site.wrap("torch:Tensor.cuda", lambda original: held.copies(original, "cuda"))


class _Held:
    """The batches that are held, each for one loader, and their copies on a device."""

    def __init__(self, site: "Site", *, pinned: bool) -> None:
        self._site, self._pinned = site, pinned
        self._batches: Any = weakref.WeakKeyDictionary()  # what draws the indices -> (as it came, handed out, versions)
        self._given: Any = weakref.WeakKeyDictionary()  # iterator -> batches it has handed out
        self._copies: dict[int, tuple[Any, dict[str, Any]]] = {}  # id of a held tensor -> it, its copies by device

    def follows(self, original: Any) -> Any:
        """Answer `next` of a pass with what is held, as often as the pass has batches."""

        def call(iterator: Any) -> Any:
            length, key = _length(iterator), getattr(iterator, "_index_sampler", None)
            given = self._given.get(iterator, 0)
            if type(key).__hash__ is None or not (length or _goes_on(given)):  # a list is no key
                return original(iterator)
            if length and given + max(0, getattr(iterator, "_num_yielded", 0)) >= length:
                self._given.pop(iterator, None)  # torch may begin another pass with the same iterator
                raise StopIteration
            if key not in self._batches:
                batch = original(iterator)
                return self._hold(key, copy.deepcopy(batch), batch)
            pristine, batch, versions = self._batches[key]
            if _versions(batch) != versions:  # the script changes its batches in place
                self._forget(batch)
                batch = self._hold(key, pristine, copy.deepcopy(pristine))
            self._given[iterator] = given + 1
            self._site.hit("next")
            return batch

        return call

    def copies(self, original: Any, name: str) -> Any:
        """Answer the copy of a tensor that is held with the one made of it before."""
        from torch.compiler import is_dynamo_compiling

        from flatout.torch_loader.batch_copies import asked_device

        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            held = None if is_dynamo_compiling() else self._copies.get(id(tensor))
            device = asked_device(name, args, kwargs) if held is not None else None
            if held is None or device is None or device.type in ("cpu", tensor.device.type):
                return original(tensor, *args, **kwargs)
            _, made = held
            if str(device) not in made:
                made[str(device)] = original(tensor, *args, **kwargs)
            return made[str(device)]

        return call

    def _hold(self, key: Any, pristine: Any, batch: Any) -> Any:
        """Hold `batch`, which the script may change, and `pristine`, which it never sees; return what it gets."""
        from flatout.torch_loader.batch_copies import tensors_at

        batch = _pinned(batch) if self._pinned else batch
        self._batches[key] = (pristine, batch, _versions(batch))
        self._copies.update({id(tensor): (tensor, {}) for _, tensor in tensors_at(batch)})
        return batch

    def _forget(self, batch: Any) -> None:
        from flatout.torch_loader.batch_copies import tensors_at

        for _, tensor in tensors_at(batch):
            self._copies.pop(id(tensor), None)


def _pinned(batch: Any) -> Any:
    """Return `batch` as a loader with `pin_memory=True` gives it; as it is where no CUDA device is in use."""
    import torch
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(batch) if torch.cuda.is_initialized() else batch


def _goes_on(given: int) -> bool:
    """Return whether a pass of unknown length is given what is held once more."""
    import torch

    return given < _MOST_GIVEN and torch.is_grad_enabled()


def _length(iterator: Any) -> int:
    """Return how many batches a pass has, 0 where that is not known."""
    try:
        return len(iterator)
    except (TypeError, NotImplementedError):
        return 0


def _versions(batch: Any) -> list[int]:
    """Return what changes when a tensor of `batch` is written to."""
    from flatout.torch_loader.batch_copies import tensors_at

    return [tensor._version for _, tensor in tensors_at(batch) if not tensor.is_inference()]


HELD_BATCH = Fix(
    name="held-batch",
    equivalence=Equivalence.SEMANTIC,
    phases=(Phase.INPUT, Phase.TRANSFER),
    patch=patch,
    switchable=True,
    on_request=True,
)
