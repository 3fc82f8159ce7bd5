"""Let the processor take the square roots of Adam's steps, where torch asks Intel's library for them.

## What it does

Makes the steps of torch's Adam, AdamW and SGD on the CPU in one pass over memory, as `one-pass-optimizer` does, and
takes Adam's square roots by the processor's own instruction. `flatout.one_pass_optimizers(hardware_sqrt=True)` does
the same in a script of your own.

## Why it helps

torch's builds for x86 take square roots of float32 by Intel's Vector Mathematics, a good part of what a step of Adam
in one pass computes. For the MNIST guide's network (109,386 weights) Adam took 191 us of a step of 490 by torch's loop,
82 of 374 in one pass, 75 of 369 with `fused=True`, and 65 of 358 so; for a transformer of 3.2 million weights 4.8 ms,
3.0, 1.8 and 2.3 of some 25 (medians of n=4 turns, 2 cores of an AMD EPYC; `python benchmarks/optimizer_steps.py`).

## How equal

ROUNDING. The instruction gives the number that is nearest to the root; Intel's function gives the one next to it for
some 9 % of the numbers of one exponent and 25 % of those of the next (all 2^23 numbers of 20 exponents, torch 2.13, AMD
EPYC). So weights may differ in their last bits after a step; both moments and the counters are held to the same bits,
and weights to four roundings of a weight and of its change, when settings are proven, in the first steps and in every
1000th.

## When it is wrong

As `one-pass-optimizer`: little is gained where the optimizer is a small part of the step, and it does not act on a GPU
or on what that one leaves to torch. For some millions of weights and more, `fused=True` waits less for memory. Where
torch does not ask Intel's library, it is `one-pass-optimizer` under another name.
"""

import platform
from typing import TYPE_CHECKING

from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fix import Fix
from flatout.fixes.one_pass_optimizer import loops_on_cpu, stand_for_loops
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX"]

_LEAST = 1.08  # if steps of the optimizer took no time: roots are a fifth of it
_X86 = ("x86_64", "AMD64")


def patch(site: "Site") -> None:
    """Make the steps of torch's loops in one pass each, with the processor's square roots."""
    stand_for_loops(site.wrap, site.hit, hardware_sqrt=True)


def choices(run: Run) -> tuple[dict[str, object], ...]:
    """Offer it where Adam or AdamW loops over tensors on a CPU for which torch has Intel's library."""
    return ({},) if platform.machine() in _X86 and loops_on_cpu(run, ("Adam", "AdamW")) else ()


FIX = Fix(
    name="hardware-sqrt",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.OPTIMIZER,),
    patch=patch,
    choices=choices,
    addresses=("CO001",),
    least=_LEAST,
    switchable=True,
    edit=(SwitchLine(code="flatout.one_pass_optimizers(hardware_sqrt=True)", needs="flatout"),),
)
