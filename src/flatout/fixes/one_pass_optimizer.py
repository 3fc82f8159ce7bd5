"""Make the optimizer's step in one pass over memory, where torch's loop makes several, with the same bits.

## What it does

Replaces the loops of torch's Adam, AdamW and SGD on the CPU (`torch.optim.adam._single_tensor_adam` and its like).
Compiled code on torch's own threads reads each weight, gradient and moment once, does to it what torch's operations do,
in their order, and writes it once. State, checkpoints, hooks, schedulers and scalers stay the script's own.
`flatout.one_pass_optimizers()` does the same in a script of your own.

## Why it helps

The loop makes 8 to 14 small operations for every weight tensor, each through Python and the dispatcher, and each one
reads and writes all numbers again. For the MNIST guide's network (6 tensors, 109,386 weights) under Adam the optimizer
was 2.32 times as fast as with the loop, the step 1.30 times (with `fused=True` 2.54 and 1.32 times); with 48 small
tensors of convolutions the step was 1.20 times as fast, with a transformer of 3.2 million weights 1.03 times (medians
of n=4 turns, 2 cores of an AMD EPYC, 2026-11-26; `python benchmarks/optimizer_steps.py`).

## How equal

BITWISE. Numbers are rounded where torch rounds them: square roots come from the library that torch uses, and which sums
its build fuses with a product is found by trying. Before it is used, each combination of settings is proven against
torch's own function, by three steps of 71,150 numbers; parts of the script's own tensors are compared with it in the
first steps and in every 1000th. Steps stay torch's where a bit differs, and where a version of torch computes them in
another way. So they do with `betas=(0, ...)`, where torch itself gives zeros another sign in the last elements of a
tensor, and after 16 combinations, where a schedule makes new ones at each step (`OneCycleLR` changes momentum, too).

## When it is wrong

Little is gained where the optimizer is a small part of the step. On a GPU it does not act: torch already updates lists
of tensors there. Left to torch: SGD without momentum, `amsgrad`, `capturable`, `differentiable`, `fused`, a learning
rate or another setting that is a tensor, other types than float32, sparse gradients, tensors in another order of memory
(channels-last) or that share memory, flushed denormals, and steps that a torch mode, a transform or `torch.compile`
looks at. It needs a C compiler when flatout is installed.
"""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Make, Site
    from flatout.optimizers.kinds import OptimizerStep
    from flatout.probe.core.seams import Hits

__all__ = ["FIX", "one_pass_optimizers"]

_LEAST = 1.1  # if steps of the optimizer took no time, without the input's: about half of that can go
_KINDS = ("Adam", "AdamW", "SGD")
_IN_PLACE: list[Any] = []  # what `one_pass_optimizers` has put in place in this process


def patch(site: "Site") -> None:
    """Make the steps of torch's loops in one pass each."""
    _stand_for_loops(site.wrap, site.hit, site.stand_back)


def one_pass_optimizers() -> None:
    """Make the steps of torch's Adam, AdamW and SGD on the CPU in one pass over memory, bit-identical to its loops.

    It holds for the rest of the process, also for existing optimizers; a second call changes nothing.
    What is not proven to give the same bits stays torch's (docs/fixes/one-pass-optimizer.md), and so does everything
    where flatout was installed without a C compiler.
    """
    from flatout.probe.core.seams import Seams

    if not _IN_PLACE and _is_compiled():
        seams = Seams()
        _IN_PLACE.append(seams)

        def wrap(dotted: str, make: "Make") -> bool:
            def as_function(original: Callable[..., Any], hits: "Hits") -> Callable[..., Any]:
                made = make(original)  # may be an object, whose attributes are its own
                return lambda *args, **kwargs: made(*args, **kwargs)

            return seams.wrap(dotted, as_function)

        _stand_for_loops(wrap, lambda name: None, lambda reason: None)


def _stand_for_loops(
    wrap: "Callable[[str, Make], bool]", hit: Callable[[str], None], stand_back: Callable[[str], None]
) -> None:
    """Put one pass in place of each of torch's loops, and in place of what leads to them."""
    import torch

    from flatout.optimizers.kinds import AdamStep, SgdStep
    from flatout.optimizers.one_pass import OnePass
    from flatout.optimizers.short_step import ShortStep

    def stand_for(dotted: str, step: "OptimizerStep") -> "list[OnePass]":
        made: list[OnePass] = []

        def make(original: Callable[..., Any]) -> OnePass:
            name = dotted.replace(":_single_tensor_", ".")
            kind = name.rpartition(".")[2]
            made.append(OnePass(original, step, lambda: hit(name), lambda why: stand_back(f"{kind}: {why}")))
            return made[0]

        module, _, name = dotted.partition(":")
        if wrap(dotted, make):
            made[0].now_stands(getattr(sys.modules[module], name))
        return made

    optim = torch.optim
    adam = stand_for("torch.optim.adam:_single_tensor_adam", AdamStep())
    stand_for("torch.optim.adamw:_single_tensor_adamw", AdamStep(decoupled=True))  # before torch 2.7
    sgd = stand_for("torch.optim.sgd:_single_tensor_sgd", SgdStep())
    kinds = [each for each in (optim.Adam, optim.AdamW) if each.step is optim.Adam.step]
    states = ("exp_avg", "exp_avg_sq", "", "step")
    for one_pass in adam if _is_torchs(optim.Adam) else ():
        wrap("torch.optim:Adam.step", ShortStep(kinds, one_pass, states, lambda group: True).make)
    for one_pass in sgd if _is_torchs(optim.SGD) else ():
        keeps = ShortStep([optim.SGD], one_pass, ("momentum_buffer",), lambda group: group["momentum"] != 0)
        wrap("torch.optim:SGD.step", keeps.make)


def _is_torchs(kind: Any) -> bool:
    """Tell whether the step is not within what calls its hooks, which are called around the first optimizer's."""
    return not getattr(kind.step, "hooked", False)


def _is_compiled() -> bool:
    return importlib.util.find_spec("flatout.optimizers._steps") is not None


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where an optimizer that is known loops over tensors on the CPU, and there is compiled code."""
    if run.environment.device_kind != "cpu":
        return Unfit(f"the optimizer works on {run.environment.device_kind}, not on the CPU")
    if not _is_compiled():
        return Unfit("flatout was installed without a C compiler")
    loops = any(each.name in _KINDS and each.implementation == "loop" for each in run.optimizers)
    return ({},) if loops else Unfit("no Adam, AdamW or SGD of torch's loops over its tensors")


FIX = Fix(
    name="one-pass-optimizer",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.OPTIMIZER,),
    patch=patch,
    choices=choices,
    addresses=("CO001",),
    least=_LEAST,
    switchable=True,
    edit=(SwitchLine(code="flatout.one_pass_optimizers()", needs="flatout"),),
)
