"""Files and copies as the plain script makes them: tensors laid out channels-last by a fix leave in the default order.

Every way to a file goes through `Tensor.__reduce_ex__`: `torch.save` of state dictionaries and of whole modules,
`pickle.dump`, `pickle.Pickler`. Only what is written changes; the tensors, and whoever shares memory with them (an
average of the weights that writes into `model.state_dict()`), stay as they are. Deep copies (an averaged model, a
teacher) are put in the default order too, since nothing converts their inputs and outputs.
"""

import copy
import sys
from collections.abc import Callable, Set
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["usual_strides", "write_usual_strides"]

_COPY = copy.copy.__code__


def write_usual_strides(site: "Site", shapes: Set[Any]) -> None:
    """Write and copy channels-last tensors that have one of `shapes` in the usual order while the fix is on."""
    site.wrap("torch:Tensor.__reduce_ex__", partial(_pickled, shapes))
    for kind in ("torch:Tensor", "torch.nn:Parameter"):
        site.wrap(f"{kind}.__deepcopy__", partial(_copied, shapes))
    for name in ("save_file", "save"):
        site.wrap(f"safetensors.torch:{name}", partial(_written, shapes))


def _pickled(shapes: Set[Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_ex(tensor: Any, protocol: Any) -> Any:
        if tensor.dim() == 4 and tensor.shape in shapes and not _for_a_copy():
            tensor = usual_strides(tensor)
        return original(tensor, protocol)

    return reduce_ex


def _copied(shapes: Set[Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def deepcopy(tensor: Any, memo: Any) -> Any:
        result = original(tensor, memo)
        if tensor.dim() == 4 and tensor.shape in shapes:
            result.data = usual_strides(result.data)
        return result

    return deepcopy


def _written(shapes: Set[Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def save(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        usual = {name: usual_strides(each) if each.shape in shapes else each for name, each in tensors.items()}
        return original(usual, *args, **kwargs)

    return save


def usual_strides(tensor: Any) -> Any:
    """Return a channels-last tensor with the strides of a contiguous one; any other is returned as it is.

    A dimension of size 1 may have any stride: where only that differs, the result shares the tensor's memory.
    """
    import torch

    strides = _strides(tensor.shape)
    if tensor.stride() == strides or not tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor
    with torch.no_grad():
        plain = tensor.detach()
        if tensor.is_contiguous():
            usual = plain.as_strided(tensor.shape, strides)
        else:
            usual = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(plain)
    return usual.requires_grad_(tensor.requires_grad)


def _strides(shape: Any) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _for_a_copy() -> bool:
    """Return whether `copy.copy` asks, whose result shares the tensor's memory and has to go on doing so."""
    frame: Any = sys._getframe(2)
    for _ in range(3):
        if frame is None:
            return False
        if frame.f_code is _COPY:
            return True
        frame = frame.f_back
    return False
