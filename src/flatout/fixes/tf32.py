"""Run matrix products of float32 tensors on the tensor cores, in TF32.

## What it does

Sets `torch.set_float32_matmul_precision("high")`, and nothing but that setter: where it is mixed with the newer
per-backend settings, torch refuses to read either.

## Why it helps

On NVIDIA chips since Ampere the tensor cores multiply TF32 (8 bits of exponent, 10 of mantissa) several times as fast
as the ordinary units multiply float32. Convolutions use it by default already. Its gain is not measured yet. Bounds
are known: at most 2.1x for a script recorded on an H100 (n=151 steps), 1.32x for one on an H200 (n=152 steps,
`flatout explain CO010`).

## How equal

PRECISION: products are rounded to 10 bits of mantissa and summed in float32.

## When it is wrong

Needs CUDA; tried on one H200 (`make test-gpu`, torch 2.11). A script that sets the precision itself has the last word.
Code that needs the digits (inverses, ill-conditioned sums) should not run in TF32.
"""

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


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it on CUDA, where a model computes in float32."""
    in_float32 = any("float32" in model.dtypes for model in run.models)
    why = off_cuda(run) or ("" if in_float32 else "no model computes in float32")
    return Unfit(why) if why else ({},)


def patch(site: "Site") -> None:
    """Let float32 matrix products use TF32 while the fix is switched on."""
    import torch

    before: list[str] = []

    def on() -> None:
        if torch.cuda.is_available() and torch.get_float32_matmul_precision() == "highest":
            before.append("highest")
            torch.set_float32_matmul_precision("high")
            site.hit("set_float32_matmul_precision")
        elif not torch.cuda.is_available():
            site.stand_back("there is no CUDA device")
        else:
            site.stand_back(f"the precision of products is {torch.get_float32_matmul_precision()} already")

    def off() -> None:
        if before and torch.get_float32_matmul_precision() == "high":  # else the script has changed it since
            torch.set_float32_matmul_precision(before[-1])
        before.clear()

    site.switch(on, off)


FIX = Fix(
    name="tf32",
    equivalence=Equivalence.PRECISION,
    phases=(Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.SYNC),
    patch=patch,
    choices=choices,
    addresses=("CO010",),
    switchable=True,
    edit=(
        SwitchLine(
            code='torch.set_float32_matmul_precision("high")',
            unless=("set_float32_matmul_precision", "allow_tf32", "fp32_precision"),
        ),
    ),
)
