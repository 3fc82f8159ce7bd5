"""Exchange gradients between ranks once for each optimizer step, not after every micro-batch.

## What it does

A model in DistributedDataParallel that is called several times for each step exchanges gradients in the last of these
calls alone, as in `model.no_sync()`. How many calls a step has is known from the step before. What steps, clips or
unscales earlier than that finds gradients exchanged, too: then they are averaged at once.

## Why it helps

With four micro-batches three of four exchanges are left out. Its gain is not measured yet.

## How equal

ROUNDING: gradients of the micro-batches are summed before they are averaged over the ranks, not after.

## When it is wrong

A script that reads `grad` itself between two micro-batches sees those of its own rank. Left alone: `static_graph`
models, hooks on the exchange, and parameters with hooks of their own.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_LEAST_NEEDLESS = 0.5  # exchanges in a step
_READERS = (
    "torch.nn.utils:clip_grad_norm_",
    "torch.nn.utils:clip_grad_value_",
    "torch.amp.grad_scaler:GradScaler.unscale_",
)


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where gradients are exchanged that are added to before they are read."""
    exchanges = [rank.exchange for rank in run.ranks if rank.exchange is not None]
    if not exchanges:
        return Unfit("no DistributedDataParallel exchanges gradients")
    if min(each.needless for each in exchanges) < _LEAST_NEEDLESS:
        return Unfit("gradients are exchanged once a step")
    return ({},)


def patch(site: "Site") -> None:
    """Leave exchanges out while the fix is switched on."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from flatout.fixes.model.late_exchange import LateExchanges

    models = LateExchanges(site)
    site.wrap("torch.nn.parallel.distributed:DistributedDataParallel.forward", models.forward, always=True)
    for reader in _READERS:
        site.wrap(reader, models.reader, always=True)
    register_optimizer_step_pre_hook(models.stepping)


FIX = Fix(
    name="exchange-once",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.BACKWARD,),
    patch=patch,
    choices=choices,
    addresses=("DI004",),
    switchable=True,
    edit=(Unwritten(reason="`with model.no_sync():` goes around every micro-batch but the last of a step"),),
)
