"""Time the convolution algorithms once for each shape and take the fastest.

## What it does

Sets `torch.backends.cudnn.benchmark = True`: cuDNN then tries its algorithms on the first batch of each shape.

## Why it helps

Without it cuDNN chooses by heuristics, which may be wrong for a given shape and chip. They have become good. On an H200
(torch 2.11, bfloat16, channels-last), a ResNeXt-50 takes steps 1.08x as fast, a ResNet-50 1.04x, a VGG-11 1.02x, a
ResNet-18 1.01x and a MobileNet-V2 1.00x (shortest of n=2 times 20 steps; `benchmarks/history/gpu_faults.jsonl`).

## How equal

ROUNDING: other algorithms sum in another order. Which one wins can differ from process to process.

## When it is wrong

Torch keeps the algorithm that was chosen for a shape, by heuristics or by search, as long as the process lives: the fix
acts from the start of a process only, and is compared between two processes. Needs CUDA and convolutions; tried on one
H200 (`make test-gpu`, torch 2.11). Every new input shape is searched anew: with sizes that keep changing the search
costs more than it saves. The algorithms that are tried need workspaces: the peak of a small network was 54 MB higher
(H200, n=1). Left alone where the script asks for deterministic algorithms.
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
    """Offer it on CUDA, to models with convolutions."""
    convolves = any(kind.startswith(("Conv", "LazyConv")) for model in run.models for kind in model.module_types)
    why = off_cuda(run) or ("" if convolves else "no model has convolutions")
    return Unfit(why) if why else ({},)


def patch(site: "Site") -> None:
    """Let cuDNN search while the fix is switched on."""
    import torch

    cudnn = torch.backends.cudnn
    ours: list[bool] = []

    def on() -> None:
        deterministic = cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
        if torch.cuda.is_available() and not cudnn.benchmark and not deterministic:
            cudnn.benchmark = True
            ours.append(True)
            site.hit("cudnn.benchmark")
        elif not torch.cuda.is_available():
            site.stand_back("there is no CUDA device")
        else:
            set_ = "the search on already" if cudnn.benchmark else "deterministic algorithms"
            site.stand_back(f"the script has {set_}")

    def off() -> None:
        if ours:
            cudnn.benchmark = False
        ours.clear()

    site.switch(on, off)


FIX = Fix(
    name="cudnn-search",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.FORWARD, Phase.BACKWARD, Phase.SYNC),
    patch=patch,
    choices=choices,
    addresses=("CO015",),
    edit=(
        SwitchLine(
            code="torch.backends.cudnn.benchmark = True",
            unless=("cudnn.benchmark", "cudnn.deterministic", "use_deterministic_algorithms", "cudnn.flags"),
        ),
    ),
)
