"""Where values come from before they are transformed: arrays in memory, or the data set, its transform left out."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Subset, TensorDataset

from flatout.pipeline.examination import detached
from flatout.pipeline.form import Form, pack
from flatout.pipeline.layout import Layout, layout_of

__all__ = ["Source", "source_of"]

_DIGITS = {"MNIST", "FashionMNIST", "KMNIST", "QMNIST"}
_PICTURES = {"CIFAR10", "CIFAR100"}
_SLOTS = ("transform", "transforms", "image_transform", "img_transform", "preprocess", "tfm", "tfms")

Read = Callable[[torch.Tensor], tuple[torch.Tensor, list[Any]]]


@dataclass(frozen=True)
class Source:
    """The values that a transform is given, many at a time.

    `read(indices)` returns them as one tensor, and the other parts of the collated batch; `place` is the part that the
    transform makes, in `layout`'s order. `transform` is None where the values are the samples' as they are.
    `in_memory`: reading costs a gather.
    """

    read: Read
    form: Form
    transform: Any
    place: int
    layout: Layout
    in_memory: bool


def source_of(dataset: Any) -> Source | None:
    """Return where the samples of `dataset` come from, None where that is not known.

    Known are torch's TensorDataset and Subset, torchvision's data sets that keep their images as one array, and any
    data set that hands a value to a transform it holds and puts what comes back into the sample untouched.
    """
    if type(dataset) is Subset:
        inner = source_of(dataset.dataset)
        return None if inner is None else _subset(inner, dataset.indices)
    found = _known(dataset)
    return found if found is not None else _with_slot(dataset)


def _subset(inner: Source, indices: Sequence[int]) -> Source:
    places = torch.as_tensor(list(indices), dtype=torch.int64)
    return Source(
        lambda wanted: inner.read(places[wanted]),
        inner.form,
        inner.transform,
        inner.place,
        inner.layout,
        inner.in_memory,
    )


# -- arrays ---------------------------------------------------------------------------------------------------------


def _known(dataset: Any) -> Source | None:
    name, module = type(dataset).__name__, type(dataset).__module__
    if type(dataset) is TensorDataset:
        return _tensors(dataset.tensors)
    if not module.startswith("torchvision.datasets.") or dataset.target_transform is not None:
        return None
    if name in _DIGITS and module == "torchvision.datasets.mnist":
        return _labelled(dataset.data, dataset.targets, Form("image", "L"), dataset.transform)
    if name in _PICTURES and module == "torchvision.datasets.cifar":
        return _labelled(torch.from_numpy(dataset.data), dataset.targets, Form("image", "RGB"), dataset.transform)
    if name == "SVHN" and module == "torchvision.datasets.svhn":
        pixels = torch.from_numpy(dataset.data).permute(0, 2, 3, 1).contiguous()
        return _labelled(pixels, dataset.labels, Form("image", "RGB"), dataset.transform)
    return None


def _tensors(tensors: Sequence[torch.Tensor]) -> Source | None:
    if not all(type(tensor) is torch.Tensor and _dense(tensor) for tensor in tensors):
        return None
    found = layout_of([tensor[:1].contiguous() for tensor in tensors], 1)
    if found is None or not tensors:
        return None

    def read(indices: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        first, *others = [torch.index_select(tensor, 0, indices) for tensor in tensors]
        return first, others

    return Source(read, Form("tensor"), None, 0, found[0], in_memory=True)


def _dense(tensor: torch.Tensor) -> bool:
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and tensor.dim() > 0 and tensor.is_contiguous() and not tensor.is_quantized


def _labelled(pixels: torch.Tensor, labels: Any, form: Form, transform: Any) -> Source | None:
    targets = torch.as_tensor(labels, dtype=torch.int64).clone()
    found = layout_of([pixels[:1], targets[:1]], 1)
    if found is None or pixels.dtype is not torch.uint8 or transform is None:
        return None

    def read(indices: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        return torch.index_select(pixels, 0, indices), [torch.index_select(targets, 0, indices)]

    return Source(read, form, transform, 0, found[0], in_memory=True)


# -- a transform that the data set holds ----------------------------------------------------------------------------


class _Marker:
    """Stands in for what a transform makes."""


class _Recorder:
    """Stands in for a transform: keeps what it is given and returns a marker."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, *values: Any) -> Any:
        self.given.append(values[0] if len(values) == 1 else values)
        return _MARKER


_MARKER = _Marker()


def _with_slot(dataset: Any) -> Source | None:
    own = getattr(dataset, "__dict__", {})
    for name in [*(slot for slot in _SLOTS if slot in own), *(name for name in own if name not in _SLOTS)]:
        transform = own[name]
        if callable(transform) and not isinstance(transform, type | torch.utils.data.Dataset):
            found = _tried(dataset, name, transform)
            if found is not None:
                return found
    return None


def _tried(dataset: Any, name: str, transform: Any) -> Source | None:
    """Return the source that leaves `dataset.name` out, None where the marker does not come out as it went in."""
    if getattr(dataset, "__getitems__", None) is not None:
        return None
    reader = _SlotReader(dataset, name)
    try:
        values, samples = reader.values([0])
        packed = pack(values)
        found = layout_of(_collated(samples), 1) if packed is not None else None
    except Exception:  # a stranger's data set, given something that it does not expect
        return None
    if packed is None or found is None:
        return None
    place = next((place for place, part in enumerate(found[1]) if _is_token(part)), None)
    if place is None:
        return None

    def read(indices: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        values, samples = reader.values(indices.tolist())
        packed, parts = pack(values), layout_of(_collated(samples), len(indices))
        if packed is None or parts is None:
            raise ValueError("samples of several forms")
        return packed[1], parts[1][:place] + parts[1][place + 1 :]

    return Source(read, packed[0], transform, place, found[0], in_memory=False)


class _SlotReader:
    """Asks a copy of the data set for samples, its transform left out."""

    def __init__(self, dataset: Any, name: str) -> None:
        self._dataset = dataset
        self._name = name

    def values(self, indices: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """Return what the transform would be given, and the samples with a token in its place."""
        recorder, asked = _Recorder(), detached(self._dataset)
        vars(asked)[self._name] = recorder
        samples = [_with_token(asked[index]) for index in indices]
        if len(recorder.given) != len(samples):
            raise ValueError("the transform is not called once a sample")
        return recorder.given, samples


_TOKEN = 0x7F4A7C15F39CC060 / 2**63


def _is_token(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype is torch.float64 and part.tolist() == [_TOKEN]


def _with_token(sample: Any) -> Any:
    """Return `sample` with a number for the marker; raise where it is not there exactly once."""
    if sum(_markers(sample)) != 1:
        raise ValueError("the transform's result does not come out untouched, once")
    return _replaced(sample)


def _markers(sample: Any) -> list[int]:
    if sample is _MARKER:
        return [1]
    inner = sample.values() if isinstance(sample, dict) else sample if isinstance(sample, list | tuple) else ()
    return [number for value in inner for number in _markers(value)]


def _replaced(sample: Any) -> Any:
    if sample is _MARKER:
        return _TOKEN
    if isinstance(sample, dict):
        made = copy.copy(sample)
        made.update({key: _replaced(value) for key, value in sample.items()})
        return made
    if isinstance(sample, list | tuple):
        values = [_replaced(value) for value in sample]
        return type(sample)(*values) if hasattr(sample, "_fields") else type(sample)(values)
    return sample


def _collated(samples: list[Any]) -> Any:
    return torch.utils.data.dataloader.default_collate(samples)
