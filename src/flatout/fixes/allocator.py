"""Let the allocator of device memory grow its segments instead of opening new ones.

## What it does

Starts the process with `PYTORCH_ALLOC_CONF=expandable_segments:True` (torch 2.9 and later; earlier ones read
`PYTORCH_CUDA_ALLOC_CONF`, which is not set).

## Why it helps

Where sizes change from step to step, free memory is fragmented into pieces that fit nothing. The allocator then has to
return all of them to the driver and ask again, which waits for the device. Growing segments leave no such pieces.

## How equal

BITWISE: the same numbers, at other addresses.

## When it is wrong

Needs CUDA; on one H200 it gave nothing to a ResNet-18 (1.01x, 0.97 to 1.06, n=29 pairs). Tensors that are shared with
other processes, and CUDA graphs, have had trouble with such segments. Left alone where the environment configures the
allocator in any way.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fitness import off_cuda
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_VARIABLE, _VALUE = "PYTORCH_ALLOC_CONF", "expandable_segments:True"


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it on CUDA, unless the environment configures the allocator already."""
    told = {_VARIABLE, "PYTORCH_CUDA_ALLOC_CONF"} & set(run.environment.variables)
    why = off_cuda(run) or (f"the environment sets {' and '.join(sorted(told))} already" if told else "")
    return Unfit(why) if why else ({},)


def patch(site: "Site") -> None:
    """Note whether the process was started with the setting: it is read once, when the device is first used."""
    import torch

    if not torch.cuda.is_available():
        site.stand_back("there is no CUDA device")
    elif os.environ.get(_VARIABLE) != _VALUE:
        site.stand_back(f"the process was not started with {_VARIABLE}={_VALUE}")
    else:
        site.switch(lambda: site.hit(_VARIABLE), lambda: None)


FIX = Fix(
    name="allocator",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.SYNC),
    patch=patch,
    choices=choices,
    addresses=("ME004",),
    environment={_VARIABLE: _VALUE},
    edit=(
        SwitchLine(
            code=f'os.environ.setdefault("{_VARIABLE}", "{_VALUE}")',
            unless=(_VARIABLE, "PYTORCH_CUDA_ALLOC_CONF"),
            needs="os",
            first=True,
        ),
    ),
)
