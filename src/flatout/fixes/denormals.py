"""Count denormal numbers, too small for float32's full precision, as zero.

## What it does

Calls `torch.set_flush_denormal(True)` before the script does anything, so that every thread that torch starts later
has it, too.

## Why it helps

Many CPUs handle numbers below 1.2e-38 in microcode, far more slowly than others. Trained weights, momenta and averages
that decay towards zero end there. `next_word` of `benchmarks/planted`, whose squared gradients are that small, trains
1.82x as fast with the flag set by hand (1.74 to 1.86, n=3 measurements; 2 cores of an AMD EPYC, torch 2.13;
`python benchmarks/planted.py --only next_word`). `python benchmarks/denormals.py` times single operations: a square
root takes 31 times as long there, a sum or a matrix product no longer than with other numbers.

## How equal

PRECISION: what is below 1.2e-38 becomes zero, a negligible absolute error and a relative one of 100%. That is no
difference in summation order, so results are compared with the float64 reference.

## When it is wrong

Only for training on the CPU, and without effect where no such numbers occur. The flag is per thread, and new threads
inherit it: switched on later it reached the main thread only (measured: half of an operation's elements on 2 cores).
It is therefore compared between processes, never within one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_SMALLEST = 2.0**-126  # the smallest float32 of full precision


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where training runs on the CPU."""
    kind = run.environment.device_kind
    return ({},) if kind == "cpu" else Unfit(f"the training computes on {kind}, not on the CPU")


def patch(site: "Site") -> None:
    """Flush denormals while the fix is switched on."""
    import torch

    ours: list[bool] = []

    def on() -> None:
        kept = float(torch.tensor(_SMALLEST) * 0.5) > 0  # one element: no thread is started for it
        if kept and torch.set_flush_denormal(True):
            ours.append(True)
            site.hit("set_flush_denormal")
        else:
            site.stand_back("this processor cannot do it" if kept else "denormal numbers count as zero already")

    def off() -> None:
        if ours:
            torch.set_flush_denormal(False)
        ours.clear()

    site.switch(on, off)


FIX = Fix(
    name="denormals",
    equivalence=Equivalence.PRECISION,
    phases=(Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER),
    patch=patch,
    choices=choices,
    addresses=("CO008",),
    seldom=True,
    edit=(SwitchLine(code="torch.set_flush_denormal(True)", unless=("set_flush_denormal",)),),
)
