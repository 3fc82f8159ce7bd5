"""Make the optimizer's step in one pass over memory, where torch's loop makes several, with the same bits.

## What it does

Stands for the loops of torch's Adam, AdamW and SGD on the CPU (`torch.optim.adam._single_tensor_adam` and its like).
Each weight, gradient and moment is read once, goes through what torch's operations do to it, in their order, and is
written once, by compiled code on torch's own threads. State, checkpoints, hooks, schedulers and scalers are the
script's own as ever.

## Why it helps

The loop makes 8 to 14 small operations for every weight tensor, each through Python and the dispatcher, and each one
reads and writes all numbers again. For the MNIST guide's network (6 tensors, 109,386 weights) under Adam the optimizer
took 307 us of a step of 766 by the loop, 141 of 592 so, and 155 of 607 with `fused=True`; of 48 small tensors of
convolutions 1.15 as fast a step, of a transformer of 3.2 million weights 1.09 (medians of n=6 turns, 2 cores of an AMD
EPYC; `python benchmarks/optimizer_steps.py`).

## How equal

BITWISE. Roundings are where torch has them: square roots are asked of the library that torch asks, and which sums
its build fuses with a product is found by trying. Each combination of settings is then proven against torch's own
function, by three steps of 71,149 numbers, before it is used; parts of the script's own tensors are held against it in
the first steps and in every 1000th. Where a bit differs, and where a torch computes its steps in another way, they stay
torch's: so with `betas=(0, ...)`, where torch itself gives a zero another sign in the last elements of a tensor.

## When it is wrong

Little is gained where the optimizer's step is a small part of the whole, and on a GPU it does not act: torch updates
lists of tensors there as it is. Left to torch: SGD with neither momentum nor decay, `amsgrad`, `capturable`,
`differentiable`, `fused`, a learning rate or another setting that is a tensor, other types than float32, sparse
gradients, tensors in another order of memory (channels-last) or that share memory, flushed denormals, and steps that a
torch mode or `torch.compile` looks at. It needs a C compiler when flatout is installed.
"""

import ctypes
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.fixes.edit import Unwritten
from flatout.fixes.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.site import Site
    from flatout.optimizers.kinds import Step

__all__ = ["FIX"]

_KINDS = ("Adam", "AdamW", "SGD")


def patch(site: "Site") -> None:
    """Make the steps of torch's loops in one pass each."""
    import torch

    from flatout.optimizers import _steps
    from flatout.optimizers.kinds import AdamStep, SgdStep
    from flatout.optimizers.one_pass import OnePass
    from flatout.optimizers.short_step import ShortStep

    def stand_for(dotted: str, step: "Step") -> "list[OnePass]":
        made: list[OnePass] = []

        def make(original: Callable[..., Any]) -> OnePass:
            made.append(OnePass(original, step, lambda: site.hit(dotted.replace(":_single_tensor_", "."))))
            return made[0]

        site.wrap(dotted, make)
        return made

    _steps.take_roots(_librarys_root(torch.__path__[0]))
    optim = torch.optim
    adam = stand_for("torch.optim.adam:_single_tensor_adam", AdamStep())
    stand_for("torch.optim.adamw:_single_tensor_adamw", AdamStep(decoupled=True))  # before torch 2.7
    sgd = stand_for("torch.optim.sgd:_single_tensor_sgd", SgdStep())
    kinds = [each for each in (optim.Adam, optim.AdamW) if each.step is optim.Adam.step]
    states = ("exp_avg", "exp_avg_sq", "", "step")
    for one_pass in adam if _is_torchs(optim.Adam) else ():
        site.wrap("torch.optim:Adam.step", ShortStep(kinds, one_pass, states, lambda group: True).make)
    for one_pass in sgd if _is_torchs(optim.SGD) else ():
        keeps = ShortStep([optim.SGD], one_pass, ("momentum_buffer",), lambda group: group["momentum"] != 0)
        site.wrap("torch.optim:SGD.step", keeps.make)


def _librarys_root(folder: str) -> int:
    """Return where the function is that torch takes square roots with; 0 where its build has none of a library."""
    try:
        function = ctypes.CDLL(str(Path(folder) / "lib" / "libtorch_cpu.so")).vmsSqrt
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _is_torchs(kind: Any) -> bool:
    """Tell whether the step is not within what calls its hooks, which are called around the first optimizer's."""
    return not getattr(kind.step, "hooked", False)


def choices(run: Run) -> tuple[dict[str, object], ...]:
    """Offer it where an optimizer that is known loops over tensors on the CPU, and there is compiled code."""
    if run.environment.device_kind != "cpu" or importlib.util.find_spec("flatout.optimizers._steps") is None:
        return ()
    loops = any(each.name in _KINDS and each.implementation == "loop" for each in run.optimizers)
    return ({},) if loops else ()


FIX = Fix(
    name="one-pass-optimizer",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.OPTIMIZER,),
    patch=patch,
    choices=choices,
    addresses=("CO001",),
    switchable=True,
    edit=(Unwritten(reason="torch has no argument for it"),),
)
