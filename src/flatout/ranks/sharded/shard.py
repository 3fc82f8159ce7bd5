"""One parameter of which this rank keeps a share: values and gradient, whole for as long as somebody needs them.

The parameter that the script knows stays the object that it is. Between its uses it rests: its shape is there, its
values are not. Whole again, it is left whole for as long as anything else holds its memory (a view, a state dict, an
array), since that has to see what is written to it.
"""

import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

from flatout.native.holders import holders_of_one
from flatout.ranks.sharded.resting import RestingParameter, as_it_is

__all__ = ["Place", "Shard", "absent", "is_dense"]

_Tensor = torch.Tensor
_GRAD: Any = torch.Tensor.grad  # of every tensor
_nothing: dict[tuple[torch.dtype, torch.device], _Tensor] = {}


def _is_held(tensor: _Tensor) -> bool:
    """Return whether anything but `tensor` holds its memory."""
    return holders_of_one(tensor) != holders_of_one(torch.empty(1)) or tensor.untyped_storage().is_shared()


def is_dense(tensor: _Tensor) -> bool:
    """Return whether the values of a tensor lie side by side, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _in_memory(tensor: _Tensor) -> _Tensor:
    """Return the values of a dense tensor in the order in which they lie."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def absent(like: _Tensor) -> _Tensor:
    """Return a tensor that looks like another one and has no values: whoever reads it gets NaN."""
    key = (like.dtype, like.device)
    if key not in _nothing:
        _nothing[key] = torch.full((1,), torch.nan, dtype=like.dtype, device=like.device)
    return _nothing[key].as_strided(tuple(like.shape), (0,) * like.dim())


class Place(NamedTuple):
    """Which share of how many this rank keeps."""

    rank: int
    size: int


class ShareLayout:
    """How the values of a parameter are divided among ranks."""

    __slots__ = ("place", "shape", "stride")

    def __init__(self, place: Place, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
        """Take the shape of the whole, and how it lies in memory."""
        self.place, self.shape, self.stride = place, shape, stride

    @property
    def numel(self) -> int:
        """The number of values of the whole."""
        return torch.Size(self.shape).numel()

    def share(self, whole: _Tensor) -> _Tensor:
        """Return a copy of this rank's share of a tensor of the parameter's shape."""
        if whole.stride() != self.stride or not is_dense(whole):
            whole = torch.empty_strided(self.shape, self.stride, dtype=whole.dtype, device=whole.device).copy_(whole)
        flat, each = _in_memory(whole), -(-self.numel // self.place.size)
        own = flat.new_zeros(each)
        piece = flat[each * self.place.rank : each * (self.place.rank + 1)]
        own[: len(piece)].copy_(piece)
        return own

    def shaped(self, flat: _Tensor) -> _Tensor:
        """Return the whole, of the shares of all ranks in a row."""
        return flat.as_strided(self.shape, self.stride, flat.storage_offset())


class Shard(ShareLayout):
    """This rank's share of a parameter; `part` is what its optimizer steps, padded to the same length on all ranks."""

    __slots__ = ("block", "counted", "fresh", "grad_held", "part", "ref", "users", "whole")

    def __init__(
        self, parameter: Any, place: Place, forget: Callable[[Any], None], like: "Shard | None" = None
    ) -> None:
        """Take a parameter that is whole, or one without values that is to have those of `like`.

        `forget` is called with the reference to it when it has gone.
        """
        self.ref = weakref.ref(parameter, forget)
        if like is None:
            super().__init__(place, tuple(parameter.shape), tuple(parameter.stride()))
        else:
            super().__init__(place, like.shape, like.stride)
        self.whole, self.fresh, self.users = like is None, False, 0
        self.block: tuple[Shard, ...] = (self,)
        self.counted = 0  # bytes that are whole of it, as whoever counts them has counted
        self.grad_held: _Tensor | None = None  # what the script holds of the gradient, while a backward pass runs
        self.part: Any = Parameter(self.share(parameter.detach()) if like is None else like.part.detach().clone())

    @property
    def parameter(self) -> Any:
        """The parameter, as the script knows it."""
        found = self.ref()
        assert found is not None
        return found

    # -- values -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Take the share anew from the whole, which the script may have written to, or replaced."""
        if not self.whole:
            return
        with as_it_is():
            data = self.parameter.data
            if tuple(data.shape) != self.shape or (data.stride() != self.stride and is_dense(data)):
                self.shape, self.stride = tuple(data.shape), tuple(data.stride())
            self.part.data = self.share(data)

    def put(self, flat: _Tensor) -> None:
        """Make the parameter whole, of the shares of all ranks; memory that others hold stays, and is written to."""
        with as_it_is():
            if self.whole:
                self.parameter.data.copy_(self.shaped(flat))
            else:
                self.parameter.data = self.shaped(flat)
        self.whole = self.fresh = True

    def release(self) -> bool:
        """Let the parameter rest, unless it is in use, or something else holds its memory; return whether it does."""
        if self.users:
            return False
        self.fresh = False
        self.show(False)
        if not self.whole:
            return False
        self.settle()
        with as_it_is():
            parameter = self.parameter
            if is_dense(parameter) and not _is_held(parameter):
                parameter.data = absent(parameter)
                self.whole = False
        return not self.whole

    def show(self, plain: bool) -> None:
        """Let the parameter be an ordinary one, or one that tells when it is touched."""
        self.parameter.__class__ = Parameter if plain else RestingParameter

    def storage(self) -> int:
        """Return where the memory of the whole begins."""
        with as_it_is():
            return int(self.parameter.untyped_storage().data_ptr())

    # -- gradient -----------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Any:
        """The gradient of the parameter itself: whole, or None while ranks keep shares of it."""
        with as_it_is():
            return _GRAD.__get__(self.parameter)

    @grad.setter
    def grad(self, value: Any) -> None:
        with as_it_is():
            _GRAD.__set__(self.parameter, value)

    def put_down_gradient(self) -> None:
        """Keep a share of a gradient that is whole; what the script holds of it is written to after the pass."""
        whole = self.grad
        if whole is None:
            return
        self.part.grad = self.share(whole.detach())
        self.grad = None
        alone = object()
        others = sys.getrefcount(whole) > sys.getrefcount(alone)
        self.grad_held = whole if others or _is_held(whole) else None
