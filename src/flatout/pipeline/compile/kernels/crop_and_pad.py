"""`CenterCrop` and `Pad`."""

from typing import Any

import torch
from torch import Tensor

from flatout.native import native
from flatout.native.operation import Operation
from flatout.pipeline.compile.kernels.convert import as_it_is
from flatout.pipeline.compile.kernels.core.edge_lookup import Edges, cut, edges_of, fill_of, padded
from flatout.pipeline.compile.kernels.core.kernel import Kernel, Params
from flatout.pipeline.compile.kernels.core.original import is_v2, number_of_channels
from flatout.pipeline.compile.kernels.core.pillow import mode_of
from flatout.pipeline.compile.kernels.core.whole_batch import whole
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["center_crop", "common_fill", "pad"]


def center_crop(operation: Any, form: SampleForm) -> Kernel | None:
    """Return the kernel of `CenterCrop`."""
    if form.kind != "image":
        return _of_tensors(operation, form)
    size = operation.size
    if not (len(size) == 2 and all(isinstance(side, int) and side > 0 for side in size)):
        return None
    height, width = size

    def run(batch: Tensor) -> Tensor:
        channels = len(mode_of(batch))
        tall, wide = max(0, height - batch.shape[1]), max(0, width - batch.shape[2])
        if tall or wide:
            edges = Edges(wide // 2, tall // 2, (wide + 1) // 2, (tall + 1) // 2, fill=(0,) * channels)
            batch = padded(batch, edges)
        top, left = round((batch.shape[1] - height) / 2), round((batch.shape[2] - width) / 2)
        return cut(batch, top, left, height, width)

    def compiled(sizes: Tensor, _colored: bool, _params: Params) -> Operation | None:
        places = torch.zeros((len(sizes), 4), dtype=torch.int32)
        for axis, wanted in enumerate((height, width)):
            beyond = (wanted - sizes[:, axis]).clamp(min=0)  # pixels that are added around it, one more at the end
            room = (sizes[:, axis] + beyond - wanted).tolist()
            places[:, axis] = torch.tensor([round(each / 2) for each in room]) - beyond // 2
        return native.cut(places, (height, width), (0, 0, 0))

    return Kernel("CenterCrop", form, run, compiled=compiled if native.available() else None)


def pad(operation: Any, form: SampleForm) -> Kernel | None:
    """Return the kernel of `Pad`."""
    if form.kind != "image":
        return _of_tensors(operation, form) if common_fill(operation) else None
    fill = common_fill(operation) and fill_of(common_fill(operation)[0], number_of_channels(form.mode))
    edges = edges_of(operation.padding, operation.padding_mode, fill) if fill else None
    if edges is None:
        return None
    known = edges

    def run(batch: Tensor) -> Tensor:
        mode_of(batch)
        return padded(batch, known)

    return Kernel("Pad", form, run)


def common_fill(operation: Any) -> tuple[Any, ...]:
    """Return the fill in a tuple; an empty one where there is one a type of value, as v2 allows."""
    if not is_v2(operation):
        return (operation.fill,)
    fills = operation._fill
    return (fills["others"],) if set(fills) == {"others"} else ()


def _of_tensors(operation: Any, form: SampleForm) -> Kernel | None:
    if form.kind == "array":
        return as_it_is(operation, form) if is_v2(operation) else None
    return whole(operation, form)
