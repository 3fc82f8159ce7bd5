"""Let the C library keep memory that was freed, instead of giving it back to the kernel.

## What it does

When the script has imported torch, it raises three thresholds of the GNU C library's allocator (`mallopt`): freed
memory is given back only beyond 1 GiB, the heap grows by 64 MiB, and only blocks of more than 32 MiB are mapped by
themselves. `flatout.keep_freed_memory()` does the same in a script of your own.

## Why it helps

Blocks of more than 128 KiB are returned to the kernel when they are freed, as it seems good to the allocator. On the
CPU, activations and gradients are such blocks: the next step takes them anew, and the kernel clears them page by page.
For a small U-Net (8 images of 128 x 128) the time in the kernel fell from 13% and 9% of the step to 0.2%, and the CPU
time of a step from 455 and 477 to 407 and 424 ms: 1.12x (n=2 processes each way, in turns beside other programs; one
thread, 2 cores of an AMD EPYC under KVM, torch 2.13). Where steps take few pages anew it gives nothing.

## How equal

BITWISE: the same numbers, at other addresses.

## When it is wrong

The process keeps the most that it has used. It is left alone where the environment sets a variable of the allocator
(`MALLOC_...`) or preloads another one, and without the GNU C library. What `torch.empty` and `np.empty` hold is what
lay there before, which is something else then; under a limit of the process (`ulimit -v`) there is less room.
"""

import ctypes
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "bound", "choices", "keep_freed_memory", "patch"]

_TRIM, _TOP_PAD, _MMAP = -1, -2, -3  # parameters of mallopt(3): malloc.h
_SETTINGS = {_TRIM: 1 << 30, _TOP_PAD: 1 << 26, _MMAP: 1 << 25}  # 32 MiB is the most that _MMAP takes
_ROOM = 1.5  # times what faults were seen to take: caches are colder after them, too
_LEAST = 0.02


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory for the rest of the process; return whether it can.

    It cannot without the GNU C library, and does not where the environment sets the allocator (`MALLOC_...`,
    `LD_PRELOAD`).
    """
    if _configured(os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
        ctypes.CDLL(None).gnu_get_libc_version  # noqa: B018  another library's mallopt may mean something else
    except (AttributeError, OSError):
        return False
    taken = [mallopt(parameter, value) == 1 for parameter, value in _SETTINGS.items()]  # each of them
    return all(taken)


def _configured(variables: Mapping[str, str]) -> str:
    """Return the variable that sets the allocator, "" where none does."""
    return next((name for name in sorted(variables) if name.startswith("MALLOC_") or name == "LD_PRELOAD"), "")


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it on Linux with the GNU C library, where steps take memory anew."""
    found = run.causes.page_faults if run.causes else None
    if "glibc" not in run.environment.platform:
        return Unfit("it needs the GNU C library")
    if told := _configured(run.environment.variables):
        return Unfit(f"the environment sets {told} already")
    if found is None or bound(run) <= 1 / (1 - _LEAST):
        return Unfit("steps take little memory anew")
    return ({},)


def bound(run: Run) -> float:
    """Return what steps without page faults would give."""
    found = run.causes.page_faults if run.causes else None
    if found is None or found.wall_s <= 0:
        return 1.0
    share = min(_ROOM * found.faults * found.fault_s, found.system_s) / found.wall_s
    return 1 / max(0.1, 1 - share)


def patch(site: "Site") -> None:
    """Raise the thresholds as soon as the process has imported torch."""

    def keep() -> None:
        if keep_freed_memory():
            site.hit("mallopt")
        else:
            site.stand_back("the C library takes no such settings here")

    site.switch(keep, lambda: None)


FIX = Fix(
    name="kept-memory",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.INPUT),
    patch=patch,
    choices=choices,
    bound=bound,
    addresses=("ME007",),
    edit=(SwitchLine(code="flatout.keep_freed_memory()", unless=("mallopt",), needs="flatout"),),
)
