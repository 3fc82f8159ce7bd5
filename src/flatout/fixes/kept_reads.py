"""Keep what the script reads from the same files again and again, and hand out copies.

## What it does

`numpy.load`, `numpy.loadtxt`, `numpy.genfromtxt`, `numpy.fromfile`, `torch.load`, `cv2.imread`, `soundfile.read` and
`scipy.io.wavfile.read` of a path, and the arrays of an `.npz` archive, are answered from memory from the second time
on, for as long as the file has the number, size and times that it had. It is meant for loops that make their batches by
hand and samples that draw at random, and acts in the training process alone: each worker would keep as much once more.
Samples of a `DataLoader` that are the same each time are served by `compiled-input` and `cached-input`.

## Why it helps

A table of 40 rows and 8 columns came 16x as fast from memory as by `numpy.loadtxt` (10 to 26), an array of that size
9.5x as fast as by `numpy.load` (4 to 12; CPU time, medians and ranges of n=15 pairs of 60 files on ext4; 2 cores of an
AMD EPYC under KVM, beside other programs, numpy 2).

## How equal

BITWISE: everybody gets a copy of his own of what the function returned for that file with the same arguments. Before
each answer the system is asked whether the file was written or replaced. What was read within three seconds of a write
is not kept. Now and then, in 0.3% of the time, the file is read all the same and compared; a difference stops the
training, or ends the fix with a warning (`on_change="warn"`).

## When it is wrong

What is kept takes memory, at most 40% of what was free. Left alone are files on network file systems, for these tell
late; files that are mapped into memory; pickles, for these run code (`torch.load` with `weights_only=False`, results
with objects); calls that are given functions, or classes other than those of numbers; functions that the script has
replaced; loads under `torch.device`, `skip_data` or what else watches operations; all reads once the script replaces
`open` or adds an audit hook; and all further reads of a function that has warned. Code that writes to a file and sets
its times back, or maps it without Python or in another process, is not seen unless it changes the size; some reads are
made all the same, and compared. Names that modules took before (`from numpy import load`) go on to read.
"""

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import ON_CHANGE
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_READERS = (
    *("numpy:load", "numpy:loadtxt", "numpy:genfromtxt", "numpy:fromfile", "torch:load", "cv2:imread"),
    *("soundfile:read", "scipy.io.wavfile:read"),
)
_WARN_IN = {  # modules that the warnings of the functions are said to come from
    "numpy": ("numpy.lib",),
    "torch": ("torch.serialization", "torch.storage"),
    "cv2": ("cv2",),
    "soundfile": ("soundfile",),
    "scipy": ("scipy.io",),
}
_MEMBER = "numpy.lib.npyio:NpzFile.__getitem__"
_UNPACKS = frozenset({"zipfile", "gzip"})  # modules whose functions unpack what is read of an archive
_READS = re.compile(r"\b(load|loadtxt|genfromtxt|fromfile|imread|read)\(")
_LEAST_SHARE = 0.02  # of what the sampler saw of the main process


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where lines of the main process that read files cost time, in a training of several passes."""
    if run.planned.passes == 1:
        return Unfit("the training makes one pass over its data")
    costs = [cost for cost in (run.causes.lines if run.causes else ()) if cost.process == "main" and cost.stack]
    whole, spent = sum(cost.seconds for cost in costs), 0.0
    texts: dict[str, list[str]] = {}
    for cost in costs:
        at = cost.stack[0]
        if at.file not in texts:
            texts[at.file] = _lines(at.file)
        lines = texts[at.file]
        if cost.leaf in _UNPACKS or (0 < at.line <= len(lines) and _READS.search(lines[at.line - 1])):
            spent += cost.seconds
    if whole <= 0 or spent < _LEAST_SHARE * whole:
        return Unfit("no line of the training process spends time on reading arrays from files")
    return ({},)


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []


def patch(site: "Site", *, on_change: str = "stop") -> None:
    """Answer functions that read files from what they returned before."""
    import sys

    from flatout.fixes.core.kept_reports import reports_of
    from flatout.kept.kept_reads import KeptReads
    from flatout.kept.library_functions import is_of_library
    from flatout.kept.warned_calls import has_warned
    from flatout.pipeline.cache.memory_budget import MemoryBudget

    reports = reports_of(site, on_change)
    kept = KeptReads(reports, lambda: site.hit("read before"), MemoryBudget().take)
    waiting = {*_READERS, _MEMBER}

    def look() -> None:
        for dotted in sorted(waiting):
            module = dotted.partition(":")[0]
            if module not in sys.modules:
                continue
            waiting.discard(dotted)
            if not is_of_library(dotted):
                reports.left(f"{dotted} is not the function of its library")
            elif has_warned(*_WARN_IN[module.partition(".")[0]], "flatout.kept"):
                reports.left(f"{module} has warned before, and may do so again unseen")
            else:
                stand_in = functools.partial(kept.reading, dotted.replace(":", "."))
                site.wrap(dotted, kept.members if dotted == _MEMBER else stand_in)

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            look()
            return original(*args, **kwargs)

        return call

    site.switch(look, lambda: None)
    site.wrap("torch.optim.optimizer:Optimizer.__init__", before)


FIX = Fix(
    name="kept-reads",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.INPUT, Phase.HOST),
    patch=patch,
    choices=choices,
    bounds={"on_change": ON_CHANGE},
    addresses=("HO001", "IN003", "IN008"),
    from_second_pass=True,
    edit=(Unwritten(reason="whether a file was written must be asked each time: read it once, before the loop"),),
)
