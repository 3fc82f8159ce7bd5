"""What autograd saves of a parameter is not kept: a note takes its place, by which values are put together again."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch._C import _autograd
from torch.autograd.graph import saved_tensors_hooks

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.sharded.resting import as_it_is
from flatout.ranks.sharded.shard import Shard

__all__ = ["Notes"]

_is_enabled: Any = vars(_autograd)["_saved_tensors_hooks_is_enabled"]
_MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a parameter of"
    " shape {shape}, which is at version {now}; expected version {then} instead"
)


class _Saved(NamedTuple):
    """What stands for a parameter, or a view of it, in a graph."""

    shard: Shard
    parameter: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # from where the parameter begins
    version: int


class Notes:
    """Takes the place of parameters in graphs that are made while they are whole."""

    def __init__(self) -> None:
        """Know of nothing that is whole."""
        self.need: Callable[[Shard], None] = _nobody
        self._storages: dict[int, Shard] = {}

    def whole(self, shard: Shard) -> None:
        """Take note of a parameter that is whole."""
        self._storages[shard.storage()] = shard

    def clear(self) -> None:
        """Forget what was whole."""
        self._storages.clear()

    @property
    def possible(self) -> bool:
        """Whether autograd takes notes here; where it does not, what it saves of a parameter has to stay whole."""
        return bool(_is_enabled())

    def taken(self) -> Any:
        """Return the context in which a note is saved in place of a parameter; hooks of the script go first."""
        if not self.possible:
            return contextlib.nullcontext()
        if not torch.is_grad_enabled() or _autograd._top_saved_tensors_default_hooks(True) is not None:
            return contextlib.nullcontext()
        return saved_tensors_hooks(self._note, self._found)

    def install(self, seams: Seams) -> None:
        """Let transforms of functions, which refuse hooks of the script, not see these."""

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            @contextlib.contextmanager
            def disable_saved_tensors_hooks(message: str) -> Iterator[None]:
                top = _autograd._top_saved_tensors_default_hooks(True)
                ours = top is not None and top[0] == self._note
                if ours:
                    hits.count += 1
                    _autograd._pop_saved_tensors_default_hooks()
                try:
                    with original(message):
                        yield
                finally:
                    if ours:
                        _autograd._push_saved_tensors_default_hooks(self._note, self._found)

            return disable_saved_tensors_hooks

        seams.wrap("torch.autograd.graph:disable_saved_tensors_hooks", make)

    def _note(self, tensor: Any) -> Any:
        with as_it_is():
            if tensor.layout is not torch.strided or type(tensor).__torch_dispatch__ is not _PLAIN_DISPATCH:
                return tensor
            if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
                return tensor
            begin = tensor.untyped_storage().data_ptr()
            shard = self._storages.get(begin)
            if shard is None or not shard.whole or shard.ref() is None or shard.storage() != begin:
                return tensor
            parameter = shard.parameter
            if tensor.dtype is not parameter.dtype:
                return tensor
            offset = tensor.storage_offset() - parameter.storage_offset()
            return _Saved(shard, parameter, tuple(tensor.shape), tensor.stride(), offset, parameter._version)

    def _found(self, saved: Any) -> Any:
        if not isinstance(saved, _Saved):
            return saved
        with as_it_is(), torch.no_grad():
            now = saved.parameter._version
            if now != saved.version:
                raise RuntimeError(_MODIFIED.format(shape=saved.shard.shape, now=now, then=saved.version))
            self.need(saved.shard)
            data = saved.parameter.data
            return data.as_strided(saved.size, saved.stride, data.storage_offset() + saved.offset)


_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__


def _nobody(shard: Shard) -> None:
    """Put nothing together."""
