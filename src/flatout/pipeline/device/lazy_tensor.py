"""Tensors of the CPU whose values are fetched from a device when somebody looks at them.

Type, shape and strides are there at once. Any other use from Python makes the object an ordinary tensor, for good, with
its values in it. It has no memory before that: code that asks torch's dispatcher from elsewhere gets the values, and
code that asks for the memory itself is refused by torch; nobody reads what is not there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

__all__ = ["LazyTensor", "Twin"]

_SOURCE, _VALUES = "_flatout_source", "_flatout_values"


class Twin:
    """A tensor on a device, never changed, and what makes the two that a script may ask for: one there, one here."""

    def __init__(
        self, there: Callable[[], Tensor], here: Callable[[], Tensor], touched: Callable[[], None] = lambda: None
    ) -> None:
        """Take what gives a new tensor on the device, what gives one on the CPU, and what to call before that."""
        self.there, self._here, self._touched = there, here, touched

    def here(self) -> Tensor:
        """Return a new tensor on the CPU."""
        self._touched()
        return self._here()


class LazyTensor(Tensor):
    """A tensor whose values are elsewhere."""

    @staticmethod
    def __new__(cls: Any, like: Tensor, twin: Twin) -> "LazyTensor":
        """Look as `like` does, on the CPU."""
        made: LazyTensor = Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), dtype=like.dtype, device=torch.device("cpu")
        )
        vars(made).update({_SOURCE: twin, _VALUES: None})
        return made

    def there(self) -> Tensor:
        """Return a new tensor with the values, on the device."""
        twin: Twin = vars(self)[_SOURCE]
        return twin.there()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do what Python asks for, with ordinary tensors."""
        kwargs = kwargs or {}
        if func in _ABOUT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        args, kwargs = tree_map(_ordinary, (tuple(args), dict(kwargs)))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do what other code asks for, with the values."""
        args, kwargs = tree_map(_filled, (args, kwargs or {}))
        return func(*args, **kwargs)


def _ordinary(value: Any) -> Any:
    """Return `value`, made an ordinary tensor if it is a late one; where torch holds on to it, its values."""
    if type(value) is not LazyTensor:
        return value
    filled = _filled(value)
    try:
        torch._C._swap_tensor_impl(value, filled)
    except RuntimeError:  # another object of torch's refers to it
        return filled
    object.__dict__["__class__"].__set__(value, Tensor)
    own = vars(value)
    del own[_SOURCE], own[_VALUES]
    return value


def _filled(value: Any) -> Any:
    if type(value) is not LazyTensor:
        return value
    own = vars(value)
    if own[_VALUES] is None:
        own[_VALUES] = own[_SOURCE].here()
    return own[_VALUES]


_NAMES = "size dim stride numel nelement element_size is_floating_point is_complex is_contiguous __len__ __hash__"
_READ = "shape dtype device layout ndim nbytes itemsize requires_grad is_cuda is_sparse is_quantized is_leaf grad_fn"
_ABOUT = frozenset(
    [getattr(Tensor, name) for name in _NAMES.split()] + [getattr(Tensor, name).__get__ for name in _READ.split()]
)
"""What is answered without the values."""
