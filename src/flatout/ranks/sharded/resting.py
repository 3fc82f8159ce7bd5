"""A parameter whose values lie with all ranks: whatever touches it outside of a call finds it whole.

Only questions that its values have no part in (its shape, its type, whether it is trained) pass by.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch._functorch import pyfunctorch
from torch.nn import Parameter

from flatout.ranks.local_rows import HERE

__all__ = ["RestingParameter", "as_it_is", "resting_in", "without_transforms"]

_PROPERTIES = (
    "shape dtype device layout requires_grad is_leaf grad_fn ndim itemsize names is_cuda is_cpu is_sparse is_quantized"
    " is_meta is_mkldnn is_xpu is_mps is_nested retains_grad output_nr _version _backward_hooks"
    " _post_accumulate_grad_hooks"
)
_METHODS = (
    "size numel nelement dim ndimension element_size is_floating_point is_complex requires_grad_ __len__ __hash__"
    " get_device is_signed is_inference"
)


def _questions() -> frozenset[Any]:
    """Return the functions of torch's that no value has a part in."""
    properties = [vars(owner).get(name) for name in _PROPERTIES.split() for owner in torch.Tensor.__mro__]
    found: list[Any] = [getattr(one, "__get__") for one in properties if hasattr(one, "__get__")]  # noqa: B009
    found += [getattr(torch.Tensor, name) for name in _METHODS.split() if hasattr(torch.Tensor, name)]
    return frozenset((*found, torch.is_floating_point, torch.is_complex, torch.numel, torch.is_inference))


_QUESTIONS = _questions()


def as_it_is() -> Any:
    """Return the context in which a resting parameter is what it is, whole or not."""
    return torch._C.DisableTorchFunctionSubclass()


def without_transforms() -> Any:
    """Return the context outside of transforms of functions."""
    return getattr(pyfunctorch, "temporarily_clear_interpreter_stack", contextlib.nullcontext)()


class RestingParameter(Parameter):
    """What the class of a parameter is outside of calls, while each rank keeps a share of it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer a question, or do the operation on the whole."""
        if func in _QUESTIONS:
            with as_it_is():
                return func(*args, **(kwargs or {}))
        return HERE.sharding.touched(func, args, kwargs or {})

    @property
    def grad(self) -> Any:
        """The whole gradient, as one process has it."""
        return HERE.sharding.gradient(self)

    @grad.setter
    def grad(self, value: Any) -> None:
        HERE.sharding.set_gradient(self, value)

    @grad.deleter
    def grad(self) -> None:
        HERE.sharding.set_gradient(self, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy of which each rank keeps a share, too."""
        if id(self) not in memo:
            memo[id(self)] = HERE.sharding.copied(self)
        return memo[id(self)]

    def __copy__(self) -> Any:
        """Return what Python makes of the whole."""
        return HERE.sharding.touched(copy.copy, (self,), {})

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return what pickle needs of the whole, as of any other parameter."""
        return HERE.sharding.touched(Parameter.__reduce_ex__, (self, protocol), {})


RestingParameter.__name__ = RestingParameter.__qualname__ = "Parameter"  # as a script shows it


def resting_in(values: Any, depth: int = 4) -> Iterator[Any]:
    """Yield the resting parameters among arguments of a function."""
    if isinstance(values, RestingParameter):
        yield values
    elif depth and isinstance(values, dict):
        for value in values.values():
            yield from resting_in(value, depth - 1)
    elif depth and isinstance(values, (list, tuple, set)):
        for value in values:
            yield from resting_in(value, depth - 1)
