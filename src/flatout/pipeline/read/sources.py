"""Where values come from before they are transformed: arrays in memory, or the data set, its transform left out."""

import copy
import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Subset, TensorDataset

from flatout.native.records import Records
from flatout.native.recycled_memory import RecycledMemory
from flatout.pipeline.cache.batch_layout import Layout, layout_of
from flatout.pipeline.cache.row_view import RowView
from flatout.pipeline.compile.sample_form import SampleForm, pack
from flatout.pipeline.inspect.determinism import detached, some_indices
from flatout.pipeline.read.in_place import room_for, written
from flatout.pipeline.read.sample_copies import loaded
from flatout.pipeline.read.tables.table import TableDataset
from flatout.pipeline.read.tables.table_columns import TableColumns
from flatout.watch.components import attributes_of
from flatout.watch.script_signals import any_but_signals

__all__ = ["SampleSource", "Value", "slots", "source_of"]

_DIGITS = {"MNIST", "FashionMNIST", "KMNIST", "QMNIST"}
_PICTURES = {"CIFAR10", "CIFAR100"}
_TRIED = 5
_SLOTS = ("transform", "transforms", "image_transform", "img_transform", "preprocess", "tfm", "tfms")

Value = torch.Tensor | list[torch.Tensor] | RowView
"""What a transform is given, for many samples: one tensor, or one with a leading 1 each where their shapes differ; or
rows that lie elsewhere."""

Read = Callable[[torch.Tensor], tuple[Value, list[Any]]]


@dataclass(frozen=True)
class SampleSource:
    """The values that a transform is given, many at a time.

    `read(indices)` returns them, and the other parts of the collated batch; `place` is the part that the transform
    makes, in `layout`'s order. `transform` is None where the values are the samples' as they are. Where reading costs a
    call of the data set for each sample, and not a gather, `reader()` gives a function that does so for one, and
    `assemble` does with what it gave what `read` does, in some memory; `others` gives the other parts alone, of samples
    without their values. `ragged`: values are of several shapes. `columns`: the arrays that `read` gathers from, part
    by part, where it does no more than that; `places` says for each sample where in them it lies, None: in order.
    `records`: what has all parts beside one another, and gathers them together.
    """

    read: Read
    form: SampleForm
    transform: Any
    place: int
    layout: Layout
    reader: Callable[[], Callable[[int], Any]] | None = None
    assemble: Callable[[list[Any], RecycledMemory | None], tuple[Value, list[Any]]] | None = None
    others: Callable[[list[Any]], list[Any]] | None = None
    ragged: bool = False
    columns: tuple[torch.Tensor, ...] | None = None
    places: torch.Tensor | None = None
    records: Records | None = None

    @property
    def in_memory(self) -> bool:
        """Return whether reading costs a gather."""
        return self.reader is None


def source_of(dataset: Any) -> SampleSource | None:
    """Return where the samples of `dataset` come from, None where that is not known.

    Known are torch's TensorDataset and Subset, torchvision's data sets that keep their images as one array, and any
    data set that hands a value to a transform it holds and puts what comes back into the sample untouched.
    """
    if type(dataset) is Subset:
        inner = source_of(dataset.dataset)
        return None if inner is None else _subset(inner, dataset.indices)
    found = _known(dataset)
    return found if found is not None else _with_slot(dataset)


def _subset(inner: SampleSource, indices: Sequence[int]) -> SampleSource:
    places = torch.as_tensor(list(indices), dtype=torch.int64)

    def reader() -> Callable[[int], Any]:
        assert inner.reader is not None
        one = inner.reader()
        return lambda index: one(int(places[index]))

    return dataclasses.replace(
        inner,
        read=lambda wanted: inner.read(places[wanted]),
        reader=None if inner.reader is None else reader,
        places=places if inner.places is None else inner.places[places],
    )


# -- arrays ---------------------------------------------------------------------------------------------------------


def _known(dataset: Any) -> SampleSource | None:
    name, module = type(dataset).__name__, type(dataset).__module__
    if type(dataset) is TensorDataset:
        return _tensors(dataset.tensors)
    if type(dataset) is TableDataset:
        return _columns(dataset.dense_columns)
    if not module.startswith("torchvision.datasets.") or dataset.target_transform is not None:
        return None
    if name in _DIGITS and module == "torchvision.datasets.mnist":
        return _labelled(dataset.data, dataset.targets, SampleForm("image", "L"), dataset.transform)
    if name in _PICTURES and module == "torchvision.datasets.cifar":
        return _labelled(torch.from_numpy(dataset.data), dataset.targets, SampleForm("image", "RGB"), dataset.transform)
    if name == "SVHN" and module == "torchvision.datasets.svhn":
        pixels = torch.from_numpy(dataset.data).permute(0, 2, 3, 1).contiguous()
        return _labelled(pixels, dataset.labels, SampleForm("image", "RGB"), dataset.transform)
    return None


def _tensors(tensors: Sequence[torch.Tensor]) -> SampleSource | None:
    if not all(type(tensor) is torch.Tensor and _dense(tensor) for tensor in tensors):
        return None
    found = layout_of([tensor[:1].contiguous() for tensor in tensors], 1)
    if found is None or not tensors:
        return None

    def read(indices: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        first, *others = [torch.index_select(tensor, 0, indices) for tensor in tensors]
        return first, others

    return SampleSource(read, SampleForm("tensor"), None, 0, found[0], columns=tuple(tensors))


def _columns(columns: TableColumns | None) -> SampleSource | None:
    """Return where the samples of a table come from; None where they are more than numbers."""
    if columns is None or not columns.names:
        return None
    records = columns.records
    found = layout_of(dict(zip(columns.names, records.gather(torch.tensor([0], device="cpu")), strict=True)), 1)
    if found is None:
        return None

    def read(indices: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        first, *others = records.gather(indices)
        return first, others

    return SampleSource(read, SampleForm("tensor"), None, 0, found[0], records=records)


def _dense(tensor: torch.Tensor) -> bool:
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and tensor.dim() > 0 and tensor.is_contiguous() and not tensor.is_quantized


def _labelled(pixels: torch.Tensor, labels: Any, form: SampleForm, transform: Any) -> SampleSource | None:
    targets = torch.as_tensor(labels, dtype=torch.int64).clone()
    found = layout_of([pixels[:1], targets[:1]], 1)
    if found is None or pixels.dtype is not torch.uint8 or transform is None:
        return None

    def read(indices: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        return torch.index_select(pixels, 0, indices), [torch.index_select(targets, 0, indices)]

    return SampleSource(read, form, transform, 0, found[0], columns=(pixels, targets))


# -- a transform that the data set holds ----------------------------------------------------------------------------


class _Marker:
    """Stands in for what a transform makes."""


class _Recorder:
    """Stands in for a transform: keeps what it is given and returns a marker."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, *values: Any) -> Any:
        loaded(values)
        self.given.append(values[0] if len(values) == 1 else values)
        return _MARKER


_MARKER = _Marker()


def _with_slot(dataset: Any) -> SampleSource | None:
    found = (_tried(dataset, name, vars(dataset)[name]) for name in slots(dataset))
    return next((source for source in found if source is not None), None)


def slots(dataset: Any) -> list[str]:
    """Return the names under which `dataset` holds what may be a transform, the likeliest first."""
    own = attributes_of(dataset) or {}
    names = [*(slot for slot in _SLOTS if slot in own), *(name for name in own if name not in _SLOTS)]
    return [
        name for name in names if callable(own[name]) and not isinstance(own[name], type | torch.utils.data.Dataset)
    ]


def _tried(dataset: Any, name: str, transform: Any) -> SampleSource | None:
    """Return the source that leaves `dataset.name` out, None where the marker does not come out as it went in."""
    if getattr(dataset, "__getitems__", None) is not None:
        return None

    alive = _weakly(dataset)  # whatever is kept is let go with the data set: it must not hold it

    def reader() -> Callable[[int], Any]:
        return _SlotReader(alive(), name).one

    try:
        one = reader()
        given = [one(index) for index in some_indices(len(dataset), _TRIED)]
        forms = {packed[0] for packed in (pack([value]) for value, _ in given) if packed is not None}
        found = layout_of(_collated([sample for _, sample in given[:1]]), 1)
    except any_but_signals():  # a stranger's data set, given something that it does not expect
        return None
    place = next((place for place, part in enumerate(found[1]) if _is_token(part)), None) if found else None
    if found is None or place is None or len(forms) != 1:
        return None
    form = forms.pop()
    own = RecycledMemory()
    assemble, others = functools.partial(_assembled, place, form, own), functools.partial(_others, place)
    ragged = pack([value for value, _ in given]) is None

    def read(indices: torch.Tensor) -> tuple[Value, list[Any]]:
        each = map(reader(), indices.tolist())
        begun = [] if ragged else [*itertools.islice(each, 1)]
        room = room_for(form, begun[0][0], len(indices), own) if begun else None
        if room is None:
            return assemble([*begun, *each], None)
        samples, unfit = written(form, itertools.chain(begun, each), room)
        return assemble(unfit, None) if unfit else (room, others(samples))

    return SampleSource(read, form, transform, place, found[0], reader, assemble, others, ragged)


def _weakly(dataset: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(dataset)
    except TypeError:  # one of a type that cannot be watched
        return lambda: dataset


def _assembled(
    place: int, form: SampleForm, own: RecycledMemory, given: list[Any], memory: RecycledMemory | None
) -> tuple[Value, list[Any]]:
    """Return values and the other parts of a batch; raise where they are of another form or no rows."""
    packed = pack([value for value, _ in given], memory or own)
    each = [pack([value]) for value, _ in given] if packed is None else [packed]
    others = _others(place, [sample for _, sample in given])
    if any(one is None or one[0] != form for one in each):
        raise ValueError("samples of several forms")
    return (packed[1] if packed is not None else [one[1] for one in each if one is not None]), others


def _others(place: int, samples: list[Any]) -> list[Any]:
    """Return the parts of a batch besides the one that the transform makes."""
    parts = layout_of(_collated(samples), len(samples))
    if parts is None:
        raise ValueError("samples of several forms")
    return parts[1][:place] + parts[1][place + 1 :]


class _SlotReader:
    """Asks a copy of the data set for samples, its transform left out."""

    def __init__(self, dataset: Any, name: str) -> None:
        self._recorder, self._asked = _Recorder(), detached(dataset)
        vars(self._asked)[name] = self._recorder

    def one(self, index: int) -> tuple[Any, Any]:
        """Return what the transform would be given, and the sample with a token in its place."""
        self._recorder.given = []
        sample = _with_token(self._asked[index])
        if len(self._recorder.given) != 1:
            raise ValueError("the transform is not called once a sample")
        return self._recorder.given[0], sample


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
