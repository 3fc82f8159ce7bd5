"""Exchange gradients between ranks in bfloat16.

## What it does

Registers torch's `bf16_compress_hook` on every model that is put into DistributedDataParallel: gradients are rounded to
bfloat16, divided by the number of ranks, summed over them, and added to the weights in their own type.

## Why it helps

Half as many bytes go over the network. Its gain is not measured yet.

## How equal

PRECISION: a gradient keeps 8 of its 24 bits in the exchange; weights and the optimizer's state keep all of theirs.

## When it is wrong

Where the network is fast and the model small, converting costs more than the bytes that it spares. Left alone: models
with a hook of the script's own, gradients that are not float32, and backends that cannot sum bfloat16, as gloo.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fitness import off_cuda
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it on CUDA, where DistributedDataParallel exchanges gradients."""
    why = (
        "" if any(rank.exchange is not None for rank in run.ranks) else "no DistributedDataParallel exchanges gradients"
    )
    why = why or off_cuda(run)
    return Unfit(why) if why else ({},)


def patch(site: "Site") -> None:
    """Register the hook on each model as it is made."""
    import torch

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(module: Any, *args: Any, **kwargs: Any) -> None:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

            original(module, *args, **kwargs)
            kinds = {one.dtype for one in module.parameters() if one.requires_grad}
            if module._comm_hooks or kinds != {torch.float32}:
                site.stand_back("a hook of the script's own exchanges the gradients, or they are not float32")
                return
            try:
                module.register_comm_hook(None, bf16_compress_hook)
            except TypeError as error:
                site.stand_back(str(error))
                return
            site.hit("exchange")

        return init

    site.wrap("torch.nn.parallel.distributed:DistributedDataParallel.__init__", make)


FIX = Fix(
    name="bf16-exchange",
    equivalence=Equivalence.PRECISION,
    phases=(Phase.BACKWARD,),
    patch=patch,
    choices=choices,
    addresses=("DI003",),
    edit=(Unwritten(reason="`model.register_comm_hook(None, bf16_compress_hook)` stands behind the wrapped model"),),
)
