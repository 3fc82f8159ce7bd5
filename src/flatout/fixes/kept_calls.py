"""Keep what a function of the script's returns, where it is given the same and returns the same again.

## What it does

Where the recording names such a function (CO019: in every step, CO036: again within a step), its calls go through one
of flatout's. The first calls with the same arguments are watched from inside: which code runs, what it reads, that it
does nothing but compute. Then copies of the result are handed out, for as long as everything that was read is as it
was: arguments, globals, attributes, closures, functions, the numbers in tensors and arrays, settings of torch. 64
results are kept for a function, in 256 MiB.

## Why it helps

Tables, masks and grids that are made in every step, often by loops in Python, are made once. For a small model that
makes a table of 96 x 64 sines in Python at each call, `flatout tune` confirmed 3.4x (2.77 to 4.11, n=6 pairs; one
thread, 2 cores of an AMD EPYC, torch 2.13, beside other programs); for six heads that each ask for the distances of 90
sites, 2.0x (1.89 to 2.04, n=11 pairs, the same); scripts: `tests/e2e/test_work_done_again.py`.

## How equal

BITWISE: a call is answered only where the function, called again, would run the same code on the same values. Random
numbers, clocks, output, files, attributes that are written, calls of modules and gradients rule that out. In addition
0.3% of the time goes to calling functions all the same: where a bit differs, the training stops with a line that says
how many calls were answered from memory (`on_change="warn"`: it goes on without the fix).

## When it is wrong

Nothing is kept of functions that code of packages other than torch, NumPy, einops and a few of the standard library is
called in, of generators, of functions inside others, on other devices than the CPU, in worker processes, while
functions are compiled, where looking and copying would take longer than a third of the call, and where a function
returns a list, dictionary or tensor that it was given. Objects are followed by their attributes: of one whose class
holds more (a `UserDict`, a `deque`, an array of the script's own class) nothing is kept. `flatout run` says why where
it never acts. A function that writes to its result is served: everybody gets a copy of his own. A name of such a
function is that of another function, which calls it: a script that compares functions by identity, or sets `__code__`
of one that it got before, or reads its `__code__` and `__globals__`, sees that, and warnings with a `stacklevel` name
that one's line. In your own code, make such a value once, where the model or the data are made.
"""

import functools
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import ON_CHANGE, Bound
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_MOST = 8  # functions
_NAMES = Bound(
    words="at most 8 files and functions of the script's, as in `model.py:Net.mask, grid.py:edges`",
    form=r"[^/\\:,\x00-\x1f]{1,255}:[\w.]{1,255}(, [^/\\:,\x00-\x1f]{1,255}:[\w.]{1,255}){0,7}",
)


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it for the functions that the recording saw return the same in every step, or again within one."""
    causes = run.causes or Causes()
    found = [(one.file, one.function) for one in causes.unchanging_calls]
    found += [(one.file, one.function) for one in causes.repeated_calls]
    if not found:
        return Unfit("no function of the script's was seen to return the same in every step, or again within one")
    names = dict.fromkeys(_spelled(file, function) for file, function in found if _is_reachable(function))
    if not names:
        return Unfit(f"`{found[0][1]}` is made anew each time, inside of another function")
    return ({"functions": ", ".join(list(names)[:_MOST])},)


def _spelled(file: str, function: str) -> str:
    """Return how settings name a function: by its file's own name, so that a recipe holds no folders."""
    return f"{file.replace(chr(92), '/').rpartition('/')[2]}:{function}"


def _is_reachable(function: str) -> bool:
    """Return whether a function of that qualified name belongs to a module or a class, and is not made anew."""
    return all(part.isidentifier() for part in function.split("."))


def patch(site: "Site", *, functions: str, on_change: str = "stop") -> None:
    """Answer calls of `functions` from memory, once modules have them."""
    from flatout.fixes.core.kept_reports import reports_of
    from flatout.kept.kept_function import KeptFunction
    from flatout.kept.named_functions import FunctionSearch

    reports = reports_of(site, on_change)
    kept: dict[int, KeptFunction] = {}

    def stand_in(home: str, name: str) -> None:
        qualified, made = name.rpartition(":")[2], list[KeptFunction]()

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            if id(original) not in kept:
                kept[id(original)] = KeptFunction(original, qualified, reports, functools.partial(site.hit, qualified))
            made.append(kept[id(original)])
            return made[-1]

        site.wrap(home, make)
        standing = _standing_at(home)
        if standing is not None and made:
            made[-1].stands_in(standing)

    search = FunctionSearch(functions.split(", "), stand_in)
    site.switch(search.look, lambda: None)
    for seam in ("torch:Tensor.backward", "torch.optim.optimizer:Optimizer.__init__"):
        site.wrap(seam, search.before)


def _standing_at(home: str) -> FunctionType | None:
    """Return the function that a module has under a dotted name, None where there is none."""
    module, _, path = home.partition(":")
    value: Any = sys.modules.get(module)
    for part in path.split("."):
        value = getattr(value, "__dict__", {}).get(part)
    value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    return value if isinstance(value, FunctionType) else None


FIX = Fix(
    name="kept-calls",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.HOST),
    patch=patch,
    choices=choices,
    bounds={"functions": _NAMES, "on_change": ON_CHANGE},
    addresses=("CO019", "CO036"),
    switchable=True,
    edit=(Unwritten(reason="what a function reads must be watched: make the value once, in an attribute or a buffer"),),
)
