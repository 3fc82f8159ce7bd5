"""Functions of torch and numpy that scripts put into a chain as they are."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.compile.kernels.core.kernel import Kernel
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["function_kernel"]


def function_kernel(operation: Any, form: SampleForm) -> Kernel | None:
    """Return the kernel of a known function given as the operation itself; None for any other."""
    if operation is torch.flatten and form.kind == "tensor":
        return Kernel("flatten", SampleForm("tensor"), _flatten, view=_flatten)
    if operation is torch.Tensor.float and form.kind == "tensor":
        return Kernel("float", SampleForm("tensor"), lambda batch: collated(batch.float()), _float_into)
    if operation in (torch.from_numpy, torch.as_tensor, torch.tensor):
        return _to_tensor(operation, form)
    numpy = sys.modules.get("numpy")
    if numpy is not None and operation in (numpy.asarray, numpy.array):
        return _passing(operation, SampleForm("array"))
    return None


def _to_tensor(operation: Callable[..., Any], form: SampleForm) -> Kernel | None:
    """Return what makes a tensor of an array; `as_tensor` lets plain tensors pass, `tensor` would warn."""
    passes = form == SampleForm("tensor") and operation is torch.as_tensor
    return _passing(operation, SampleForm("tensor")) if form.kind == "array" or passes else None


def _passing(operation: Callable[..., Any], after: SampleForm) -> Kernel:
    return Kernel(operation.__name__, after, collated, view=lambda batch: batch)


def _flatten(batch: Tensor) -> Tensor:
    return batch.reshape(len(batch), -1)


def _float_into(batch: Tensor, out: Tensor) -> None:
    out.copy_(batch)
