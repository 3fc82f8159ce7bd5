"""Keep the activations that the script would compute again in the backward pass.

## What it does

`torch.utils.checkpoint.checkpoint(f, ...)` becomes a plain call of `f`, while enough memory is free: a quarter of the
machine's, or of the device's.

## Why it helps

A block that is checkpointed is computed twice, once more in the backward pass. Without that a step is shorter by a
forward pass. Its gain is not measured yet.

## How equal

BITWISE, where a block does nothing but compute: the same operations in the same order, on the same numbers; what
torch's own streams draw in it is drawn once, as the second pass draws that of the first one again. That holds for
`use_reentrant=False`; the other kind adds up gradients in another order, and is left alone. It is tried on request
only, since what else a block does, it does once in place of twice, and not all of that is seen.

## When it is wrong

Memory: all activations of the blocks stay until their gradients are there. Left alone: `use_reentrant=True` (and older
calls that do not say), `preserve_rng_state=False`, `context_fn`, compiled models, functions of which no module is
known, modules with forward hooks, and those that change an attribute or a buffer when they are called (BatchNorm in
training: its running mean moves twice). Not seen: blocks that draw from generators of their own or from Python's and
NumPy's streams, write to weights, lists or global variables, print, or begin to do so later; hooks that are added
later, and modes around the call. Where weights are changed between the forward and the backward pass, autograd refuses
what would have been computed with the new ones.
"""

import hashlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "modules_of", "patch"]

_LEAST_FREE = 0.25
_LOOK_EVERY = 64  # calls


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a block was computed again."""
    found = run.causes.recomputed if run.causes else ()
    if not found:
        return Unfit("no activations are computed again")
    if any(model.compiled for model in run.models):
        return Unfit("the model is compiled, and torch.compile has its own way to compute again")
    if all(each.reentrant for each in found):
        return Unfit("use_reentrant=True adds up gradients in another order than a plain call")
    return ({},)


def patch(site: "Site") -> None:
    """Call what is checkpointed plainly, while the fix is switched on."""
    site.wrap("torch.utils.checkpoint:checkpoint", lambda original: _Kept(site, original).checkpoint)


class _Kept:
    """What is known of the functions that were checkpointed."""

    def __init__(self, site: "Site", original: Callable[..., Any]) -> None:
        self._site, self._original = site, original
        self._calls, self._fits = 0, True
        self._known: weakref.WeakKeyDictionary[Any, dict[Any, str]] = weakref.WeakKeyDictionary()  # by first module

    def checkpoint(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call `function` plainly, or as it was asked for."""
        import torch

        if torch.compiler.is_compiling():
            return self._original(function, *args, **kwargs)
        held = list(modules_of(function))
        why: str | None = _unusual(kwargs) or ("" if held else "no module of it is known")
        if not why:
            inner = [module for each in held for module in each.modules()]
            form = (_code_of(function), *((id(module), module.training) for module in inner))
            known = self._known.setdefault(held[0], {})
            why = known.get(form)
            if why is None:
                before = _state_of(inner)
                result = self._original(function, *args, **kwargs)
                known[form] = _hooked(inner) or ("" if _state_of(inner) == before else "a call of it changes its state")
                return result
        if why or not self._fits_in_memory(args):
            self._site.stand_back(f"torch.utils.checkpoint: {why or 'too little memory is free'}")
            return self._original(function, *args, **kwargs)
        self._site.hit("checkpoint")
        return function(*args, **{key: value for key, value in kwargs.items() if key not in _OPTIONS})

    def _fits_in_memory(self, args: Any) -> bool:
        """Return whether enough memory is free, asked every so many calls."""
        self._calls += 1
        if self._calls % _LOOK_EVERY == 1:
            self._fits = _free(args) >= _LEAST_FREE
        return self._fits


def _state_of(modules: list[Any]) -> list[object]:
    """Return what is equal where no attribute was set and no buffer written."""
    own = [(name, id(value)) for module in modules for name, value in vars(module).items()]
    buffers = [buffer for module in modules for buffer in module.buffers(recurse=False)]
    return [own, [(id(each), each._version, _digest(each)) for each in buffers]]


def _digest(tensor: Any) -> bytes:
    """Return what tells the numbers of a tensor: batch normalization writes past its version."""
    import torch

    return hashlib.blake2b(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()).digest()


def _code_of(function: Any) -> object:
    """Return which code a function runs, of those that one module may have."""
    function = getattr(function, "func", function)  # of a partial
    return getattr(getattr(function, "__func__", function), "__code__", type(function))


def _hooked(modules: list[Any]) -> str:
    """Return that hooks of the script are called with a module, an empty string for none."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    found = next((type(module).__name__ for module in modules if any(vars(module).get(name) for name in hooks)), "")
    return f"{found} has forward hooks, which would be called once in place of twice" if found else ""


_OPTIONS = frozenset(("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"))


def _unusual(kwargs: Mapping[str, Any]) -> str:
    """Return why a call with these options is left alone, an empty string for nothing."""
    if kwargs.get("use_reentrant", True) is not False:
        return "use_reentrant=True adds up gradients in another order"
    if not kwargs.get("preserve_rng_state", True):
        return "preserve_rng_state=False draws other numbers the second time"
    unusual = sorted({"context_fn", "debug"} & kwargs.keys())
    return f"it is given {unusual[0]}" if unusual else ""


def modules_of(function: Any) -> Iterator[Any]:
    """Yield the modules that a function is, is bound to, or holds."""
    import functools

    from torch import nn

    if isinstance(function, nn.Module):
        yield function
    elif isinstance(function, functools.partial):
        for each in (function.func, *function.args, *function.keywords.values()):
            yield from modules_of(each)
    elif isinstance(getattr(function, "__self__", None), nn.Module):
        yield function.__self__
    elif isinstance(function, list | tuple):
        for each in function:
            yield from modules_of(each)
    else:
        for cell in getattr(function, "__closure__", None) or ():
            try:
                yield from modules_of(cell.cell_contents)
            except ValueError:  # not filled yet
                continue


def _free(args: Any) -> float:
    """Return the free share of the memory of the device that the arguments are on."""
    import torch

    for each in args:
        if isinstance(each, torch.Tensor) and each.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(each.device)
            unused = torch.cuda.memory_reserved(each.device) - torch.cuda.memory_allocated(each.device)
            return (free + unused) / total
    import psutil

    from flatout.pipeline.cache.memory_budget import available_bytes

    return available_bytes() / psutil.virtual_memory().total


FIX = Fix(
    name="kept-activations",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.BACKWARD,),
    patch=patch,
    choices=choices,
    addresses=("CO035",),
    on_request=True,
    switchable=True,
    edit=(Unwritten(reason="switch checkpointing off where the model is made: `use_checkpoint=False` or the like"),),
)
