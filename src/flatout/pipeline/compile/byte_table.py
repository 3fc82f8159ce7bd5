"""What is done last to images of bytes, each byte by itself, as one look at a table, by compiled code."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flatout.native import native
from flatout.native.operation import Operation
from flatout.pipeline.compile.kernels.core.kernel import Kernel, Params
from flatout.pipeline.compile.pointwise_table import Table, table_of

__all__ = ["looked_up"]


def looked_up(kernels: Sequence[Kernel], otherwise: Kernel) -> Kernel:
    """Return a kernel that has a compiled form, too: a table, where what it gives is proven to be the same.

    Args:
        kernels: operations that treat each byte by itself, or by its channel; the first takes images.
        otherwise: all of them in one.
    """
    tables: dict[tuple[object, ...], Table | None] = {}

    def compiled(sizes: Tensor, colored: bool, _params: Params) -> Operation | None:
        kind = (colored, torch.get_default_dtype())
        if kind not in tables:
            shape = (1, *sizes[0].tolist(), *(3,) * colored)
            tables[kind] = table_of(kernels, torch.empty(shape, dtype=torch.uint8))
        made = tables[kind]
        return None if made is None else native.look_up(made.values)

    return Kernel(
        otherwise.name, otherwise.after, otherwise.run, otherwise.run_into, otherwise.view, otherwise.in_place, compiled
    )
