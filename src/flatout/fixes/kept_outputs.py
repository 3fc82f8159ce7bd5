"""Keep the outputs of a frozen module for the rows that it was given, and hand them out when the rows come back.

## What it does

Where the recording names a module that learns nothing and gets the same samples in every epoch (CO030), its outputs are
kept in memory by the contents of the rows of its input (128 bits of BLAKE2). A batch of rows that are all known is put
together from what was kept. All that the module is made of is watched by its memory, weights included. Up to 40% of the
free memory is used.

## Why it helps

A frozen encoder, backbone or teacher computes the same in every epoch. From the second epoch on this costs a digest of
the input and a copy of the output. Its gain is not measured yet.

## How equal

BITWISE. The very batch that was computed before has its own outputs. Whether rows may also be put together in another
way is tried for each form of batch (size, shapes, types) and each mode of the module: three batches, mixed from the
rows of two each, must give the same bits as their rows did; a batch counts only rows of batches of its own form. A
module that reads values of its batch back is served whole batches only. Calls whose outputs are kept are watched from
inside: they may do nothing but compute. In addition 0.3% of the time goes to calling the module all the same; where a
bit differs, the training stops with a line that says how many calls were answered from memory (`on_change="warn"`: it
goes on without the fix).

## When it is wrong

Samples that are augmented at random never come back: it gives up once memory is full. The first epoch is slower, by the
digests and by looking at the calls. It leaves modules alone that the script hooks, that draw random numbers, that
return something else than tensors, or no row for each row of the input, that gradients flow through, and those on other
devices than the CPU. Where batches are put together anew in each epoch, and kernels compute a row otherwise in other
company, nothing comes from memory.
"""

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import ON_CHANGE, Bound
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_MOST = 8  # modules
_CLASSES = Bound(words="at most 8 classes of modules, as in `Encoder, Teacher`", form=r"\w{1,255}(, \w{1,255}){0,7}")


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it for the frozen modules that the recording saw take time, on the CPU."""
    if run.environment.device_kind not in ("cpu", ""):
        return Unfit(f"outputs on {run.environment.device_kind} are not kept")
    found = run.causes.frozen_calls if run.causes else ()
    names = list(dict.fromkeys(one.module for one in found if one.module.isidentifier()))
    if not names:
        return Unfit("no module that learns nothing was seen to be called in every step")
    if any(model.compiled for model in run.models):
        return Unfit("a model is compiled, and calls inside of it are not seen")
    if run.planned.passes == 1:
        return Unfit("the training makes one pass over its data")
    return ({"modules": ", ".join(names[:_MOST])},)


def patch(site: "Site", *, modules: str, on_change: str = "stop") -> None:
    """Answer calls of frozen modules of the classes `modules` from memory."""
    from flatout.fixes.core.kept_reports import reports_of
    from flatout.kept.kept_module import KeptModule
    from flatout.pipeline.cache.memory_budget import MemoryBudget

    names, budget = frozenset(modules.split(", ")), MemoryBudget()
    reports = reports_of(site, on_change)
    kept: weakref.WeakKeyDictionary[Any, KeptModule] = weakref.WeakKeyDictionary()

    def around(module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        name = type(module).__name__
        if name not in names or (module not in kept and len(kept) >= _MOST):
            return inner
        if module not in kept:
            kept[module] = KeptModule(module, name, reports, functools.partial(site.hit, name), budget.take)
        return functools.partial(kept[module].call, inner)

    def find(root: Any) -> None:
        for module in _frozen_inside(root, names):
            site.outermost.inside(module, around)

    site.outermost.around_forward(around, always=True)
    site.outermost.each(find, lambda root: site.outermost.take_inside())


def _frozen_inside(module: Any, names: frozenset[str]) -> Iterator[Any]:
    """Yield the largest modules inside another of these classes, whose parameters ask for no gradients."""
    for child in module.children():
        frozen = not any(one.requires_grad for one in child.parameters())
        if frozen and type(child).__name__ in names:
            yield child
        elif not frozen:
            yield from _frozen_inside(child, names)


FIX = Fix(
    name="kept-outputs",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.FORWARD,),
    patch=patch,
    choices=choices,
    bounds={"modules": _CLASSES, "on_change": ON_CHANGE},
    addresses=("CO030",),
    from_second_pass=True,
    edit=(Unwritten(reason="compute the outputs once for all samples, and have the data set return them"),),
)
