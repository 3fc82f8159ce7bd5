"""What torch's own collate function does to NumPy arrays, without a call into torch for each of them.

`default_collate` makes a tensor of each array and stacks those: 1,024 rows of 8 numbers take 1.7 ms, and 0.13 ms in one
piece (one core of an AMD EPYC, torch 2.13, numpy 2.4, least of 5).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data._utils import collate as torchs
from torch.utils.data.dataloader import default_collate

__all__ = ["quicker"]

_LARGE_BYTES = 16 * 1024  # an array of so many bytes is copied no faster by NumPy
_KINDS = "biufc"  # bool, int, unsigned, float, complex


def quicker(collate_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what gives the same as `collate_fn` in less time; itself, where that is not torch's own."""
    return _collated if collate_fn is default_collate else collate_fn


def _collated(samples: Any) -> Any:
    import numpy

    known = torchs.default_collate_fn_map  # a script may have put in functions of its own
    arrays, tensors = known.get(numpy.ndarray), known.get(torch.Tensor)
    if arrays is not torchs.collate_numpy_array_fn or tensors is not torchs.collate_tensor_fn:
        return default_collate(samples)
    return torchs.collate(samples, collate_fn_map={**known, numpy.ndarray: _stacked})


@functools.cache
def _type_of(dtype: Any) -> torch.dtype:
    """Return torch's type of a NumPy array of `dtype`."""
    import numpy

    return torch.as_tensor(numpy.empty(0, dtype)).dtype


def _stacked(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Return small plain arrays of one shape and type as one tensor; the rest is torch's, errors and warnings too."""
    import numpy

    first = batch[0]
    kind, shape, dtype = type(first), first.shape, first.dtype
    plain = kind in (numpy.ndarray, numpy.memmap) and dtype.kind in _KINDS and dtype.isnative and first.flags.writeable
    here = torch.get_default_device().type == "cpu" and torch.utils.data.get_worker_info() is None
    alike = all(type(one) is kind and one.shape == shape and one.dtype == dtype for one in batch)
    if not (plain and here and alike and first.nbytes < _LARGE_BYTES):
        return torchs.collate_numpy_array_fn(batch, collate_fn_map=torchs.default_collate_fn_map)
    made = torch.empty((len(batch), *shape), dtype=_type_of(dtype))  # aligned as torch aligns
    made.numpy()[...] = batch
    return made
