"""Compile hot numeric Python of the script, where that is proven to give the same results.

## What it does

It finds the functions whose lines cost most and consist of numbers: loops over pixels, edit distances, dynamic
programs, boxes compared one by one. They are served with a decorator, `@flatout.compiled`, and their files stay as they
are. A function that as a whole reads and returns numbers, arrays, lists of numbers or texts is compiled by numba; of
others, such as a `__getitem__` that opens a file first, the loops are. Module, `self` and closure give what they hold
at each call. Workers that are forked get what was compiled before.

## Why it helps

A turn of a loop takes Python a tenth of a microsecond and more for each operation, and machine code a nanosecond. In
CPU time of a call, an edit distance of two lists of 60 numbers was 33 times as fast (29 to 36), a 3 x 3 blur of 64 x 64
pixels 222 times (189 to 379), time warping of 60 by 60 numbers 101 times (90 to 111), suppression of 60 overlapping
boxes 139 times (98 to 191; median and range, n=5 processes; 2 cores of an AMD EPYC under KVM, beside other programs,
numba 0.68). There `flatout tune` confirmed 3.1x for a small training that counts edit distances of its outputs in each
step (2.6 to 3.5), 2.4x for one whose data set has a loop over 32 x 32 pixels (1.8 to 3.2), 1.3x for that with two
workers (1.1 to 1.5; n=12 pairs each, results identical). Importing numba took 0.3 s of CPU time and compiling one of
these functions 0.7 to 1.1 s (n=1), so a training of a minute gains nothing where its loops take a second.

## How equal

BITWISE. Arithmetic is translated operation by operation: whole numbers that leave 64 bits, divisions by zero, indices
out of range, warnings of numpy, and whatever else compiled code cannot do as Python does, make the call Python's again:
what was written is put back, and Python raises its own error. Numbers come back as Python has them (`int`, `float`,
`np.uint8`). Functions of `math` are those of the C library that Python calls. The first five calls with each
combination of types (two where a call takes 0.1 s) are made by both and compared to the last bit, then one now and
then, a hundredth of the time. A difference ends it for that function; where that comes late, a line on stderr says so.

## When it is wrong

It needs numba (`pip install flatout[numba]`) and numpy 2; compiling takes a second or more for each combination of
types, in every worker that was started by `spawn`, and in forked ones in the first pass. Left to Python are: loops with
strings but for comparing letters, dicts, sets, tensors of torch, calls of functions other than Python's own and
`math`'s, `try`, random draws, sums and other operations of numpy on whole arrays, and what compiled code does not make
faster. A loop that runs compiled cannot be interrupted, and a debugger does not stop in it.
"""

import ast
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import FUNCTIONS
from flatout.fixes.core.edit import CompiledFunctions
from flatout.fixes.core.fix import Fix, Unfit
from flatout.fixes.source.decorated import definitions
from flatout.fixes.source.served_files import served_here
from flatout.numeric.subset import Function, units
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import LineCost, Run
from flatout.schema.trial import COMPILED_PYTHON, Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "bound", "choices", "patch"]

_LEAST_SHARE = 0.02  # of what the sampler saw of a process
_LEAST_SAMPLES = 8
_MOST_FUNCTIONS = 6
_ROOM = 1.5

_Named = tuple[str, str]
"""A file and a function in it."""


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer the hot functions that have something to compile."""
    hot = _hot(run)
    if not hot:
        return Unfit("no numeric loop of the script's own takes much time")
    if find_spec("numba") is None:
        return Unfit("it needs numba: pip install flatout[numba]")
    named = [shown for file, function in hot if FUNCTIONS.holds(shown := f"{_shown(file, run)}:{function}")]
    return (
        ({"functions": ", ".join(sorted(named))},)
        if named
        else Unfit("the hot loops stand outside the script's folder")
    )


def bound(run: Run) -> float:
    """Return what the training would gain if its hot loops took no time."""
    hot = _hot(run)
    costs = [cost for cost in _costs(run) if _of(cost) in hot]
    if any(cost.process == "worker" or cost.phase not in STEP_PHASES for cost in costs):
        return math.inf
    share = sum(_in_phase(run, costs, phase) * part for phase, part in _parts(run).items())
    return 1 / max(0.02, 1 - share)


def _parts(run: Run) -> dict[Phase, float]:
    """Return which part of the timed steps each of their phases is."""
    whole = sum(step.wall_ns for step in run.steps)
    sums = zip(STEP_PHASES, map(sum, zip(*(step.phases_ns for step in run.steps), strict=True)), strict=False)
    return {phase: spent / whole for phase, spent in sums} if whole > 0 else {}


def _in_phase(run: Run, costs: Sequence[LineCost], phase: Phase) -> float:
    """Return which part of a phase some costs are, at most: samples under-count plain Python."""
    whole_s = sum(cost.seconds for cost in _costs(run, process="main") if cost.phase == phase)
    spent_s = sum(cost.seconds for cost in costs if cost.phase == phase)
    return min(1.0, _ROOM * spent_s / whole_s) if whole_s > 0 else 0.0


def _costs(run: Run, process: str = "") -> Iterator[LineCost]:
    lines = run.causes.lines if run.causes else ()
    return (cost for cost in lines if not process or cost.process == process)


def _of(cost: LineCost) -> _Named:
    """Return the function that a cost belongs to, that of a comprehension being the one around it."""
    if not cost.stack:
        return "", ""
    return cost.stack[0].file, cost.stack[0].function.partition(".<locals>.<")[0]


def _hot(run: Run) -> list[_Named]:
    """Return the functions whose loops cost most, the costliest first."""
    spent: dict[_Named, float] = defaultdict(float)
    samples: dict[_Named, int] = defaultdict(int)
    wholes = {kind: sum(cost.seconds for cost in _costs(run, process=kind)) for kind in ("main", "worker")}
    known: dict[_Named, list[range]] = {}
    for cost in _costs(run):
        named = _of(cost)
        if not cost.stack or cost.leaf not in ("", "numpy") or not wholes.get(cost.process):
            continue
        if named not in known:
            known[named] = list(_loops(*named))
        if any(cost.stack[0].line in lines for lines in known[named]):
            spent[named] += cost.seconds / wholes[cost.process]
            samples[named] += cost.samples
    found = [each for each in spent if spent[each] >= _LEAST_SHARE and samples[each] >= _LEAST_SAMPLES]
    return sorted(found, key=lambda each: -spent[each])[:_MOST_FUNCTIONS]


def _loops(file: str, function: str) -> Iterator[range]:
    """Yield the lines of a function that may be compiled."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for name, node in definitions(tree):
        if name == function:
            for unit in units(node):
                piece: Function | ast.For | ast.While = unit.loop or unit.function
                yield range(piece.lineno, (piece.end_lineno or piece.lineno) + 1)


def _shown(file: str, run: Run) -> str:
    """Return a file's name as it is looked up: seen from the working folder, or from that of the script."""
    path = Path(file)
    here = Path(run.header.working_folder or ".").absolute()
    for folder in (here, (here / run.header.script).parent):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return file


def patch(site: "Site", *, functions: str) -> None:
    """Follow what is compiled of `functions` in this process; the decorators stand in the text that it is served."""
    del functions

    def note(original: Any) -> Any:
        del original
        return lambda name: site.hit(name)

    def leaves(original: Any) -> Any:
        del original
        return lambda name, reason: site.stand_back(f"{name}: {reason}")

    def differs(original: Any) -> Any:
        def tell(name: str, reason: str) -> None:
            original(name, reason)
            site.fail(f"compiled {name} {reason}")

        return tell

    site.wrap("flatout.numeric.served:note", note, in_workers=True)  # who trains is told of workers, too
    site.wrap("flatout.numeric.served:leaves", leaves)
    site.wrap("flatout.numeric.served:differs", differs)
    served_here().follow(COMPILED_PYTHON, lambda name: None, site.fail)


FIX = Fix(
    name=COMPILED_PYTHON,
    equivalence=Equivalence.BITWISE,
    phases=(Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.HOST),
    patch=patch,
    choices=choices,
    bound=bound,
    bounds={"functions": FUNCTIONS},
    settles_s=30.0,
    addresses=("CO004", "CO023", "EP004", "EP007", "HO001", "HO003", "IN003", "IN004", "IN005", "IN008"),
    edit=(CompiledFunctions(),),
)
