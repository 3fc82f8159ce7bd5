"""Leave the choice of convolution algorithms to cuDNN's heuristics, where shapes change too often to search.

## What it does

Sets `torch.backends.cudnn.benchmark = False` before each forward pass in which it is on: cuDNN then tries no algorithms
on batches of a new shape.

## Why it helps

A search runs every algorithm for each convolution of a new shape, several times, and allocates its workspace. It pays
when the shape returns many times. Its gain is not measured yet; what the searches cost is (`flatout explain CO016`).

## How equal

ROUNDING: other algorithms sum in another order.

## When it is wrong

A training with some hundred shapes has met all of them after an epoch: then the search is over, and what it found is
faster. Torch keeps the algorithm that was chosen for a shape as long as the process lives: the fix acts from the start
of a process only, and is compared between two processes. Needs CUDA and convolutions.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fitness import off_cuda
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_LEAST_STEPS = 8  # with a convolution of a new shape


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it on CUDA, where the search is on and shapes keep changing."""
    seen = run.causes.convolutions if run.causes else None
    why = off_cuda(run)
    if not why and (seen is None or seen.search != "on"):
        why = "cuDNN searches for no algorithms"
    if not why and seen is not None and seen.new_steps < _LEAST_STEPS:
        why = "convolutions have the same shapes in nearly all steps"
    return Unfit(why) if why else ({},)


def patch(site: "Site") -> None:
    """Take the search off before forward passes while the fix is switched on."""
    import torch

    cudnn = torch.backends.cudnn
    ours: list[bool] = []

    def around(module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        del module
        if cudnn.benchmark:
            cudnn.benchmark = False
            ours.append(True)
            site.hit("cudnn.benchmark")
        return inner

    def off() -> None:
        if ours:
            cudnn.benchmark = True
        ours.clear()

    site.outermost.around_forward(around)
    site.switch(lambda: None, off)


FIX = Fix(
    name="cudnn-search-off",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.FORWARD, Phase.BACKWARD, Phase.SYNC),
    patch=patch,
    choices=choices,
    addresses=("CO016",),
    edit=(SwitchLine(code="torch.backends.cudnn.benchmark = False", unless=("cudnn.benchmark", "cudnn.flags")),),
)
