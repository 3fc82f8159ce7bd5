"""Compute a float64 model in float32, and keep its weights in float64.

## What it does

Each call of a model whose weights are float64 is given float32 copies of them, and of its inputs; what it returns is
float64 again. Gradients come to the weights in float64, and the optimizer, the loss and checkpoints stay as they are.

## Why it helps

float64 halves the width of every vector instruction on a CPU; on GPUs its rate is 1/2 to 1/64 of float32. Most scripts
have it from numpy, which makes float64 arrays (`flatout explain CO002`). Steps of three linear layers, 512 wide, with
batches of 256, were 1.9x as fast (median of n=12 pairs of blocks of 20 steps, 0.9x to 4.3x; one thread, 2 cores of an
AMD EPYC that other programs used, torch 2.13).

## How equal

PRECISION: the model's operations have 24 bits of mantissa in place of 53.

## When it is wrong

Simulation, physics and some optimization problems need the digits: the trial holds losses and gradients to the limits
of PRECISION, which they may pass all the same. Constants that a model makes in float64 in its forward pass turn what
meets them into float64 again. To change the script by hand is faster: its optimizer is then float32, too. Left alone
are models with other floating types besides, those with hooks of the script's own on a module inside, models under
autocast, compiled ones, those of several ranks, those with checkpointed parts or hooks on saved tensors, and calls
inside a transform of `torch.func`. A call that fails because of types is made again as it was, and the fix is off then.
"""

import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.fixes.model.kept_values import Survey, Surveys, change_in_place
from flatout.fixes.model.narrow_weights import NarrowWeights
from flatout.fixes.model.nested_tensors import map_tensors
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_COMPARED = 4  # first calls in which all weights are compared afterwards, and then one of so many:
_SELDOM = 64
_TYPES = re.compile(r"dtype|scalar type|float32|float64|Float|Double")  # what an error says that is about types
_DEVICES = ("cpu", "cuda")
_OTHERS = ("OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


class _Float32:
    """Calls outermost modules in float32."""

    def __init__(self, site: "Site") -> None:
        import torch

        self._site = site
        self._torch = torch
        self._surveys = Surveys(site)
        self._transform = torch._C._functorch.peek_interpreter_stack
        self._suitable: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._calls = 0
        self._inside = False
        self._impossible = ""  # what a call under way does that cannot be done in float32
        site.wrap("torch.autograd.graph:saved_tensors_hooks.__enter__", self._refusing("hooks on saved tensors"))
        site.wrap("torch.utils.checkpoint:CheckpointFunction.forward", self._refusing("checkpointed parts"))

    def _refusing(self, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Have a call end that does what a backward pass would go on with when the weights are float64 again."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def enter(*args: Any, **kwargs: Any) -> Any:
                if self._inside:
                    self._impossible = what
                    raise RuntimeError(f"{what} would see float64 weights in the backward pass")
                return original(*args, **kwargs)

            return enter

        return make

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        if module not in self._suitable:
            reason = self._unsuitable(module)
            self._suitable[module] = not reason
            if reason:
                self._site.stand_back(reason)
        if not self._suitable[module]:
            return inner
        if self._transform() is not None or any(map(self._torch.is_autocast_enabled, _DEVICES)):
            self._site.stand_back(f"{type(module).__name__} is called under autocast or inside a transform")
            return inner
        survey = self._surveys.of(module)
        if survey.hooked:
            self._site.fail(f"the script's own hook on {survey.hooked} would see float32")
            return inner
        return partial(self._call, module, survey, inner)

    def _unsuitable(self, module: Any) -> str:
        """Return why a module is left as it is, "" where it is not."""
        name = type(module).__name__
        if any(type(each).__name__ in _OTHERS for each in module.modules()):
            return f"{name} is compiled, or holds a part for each of several devices"
        kinds = {each.dtype for each in (*module.parameters(), *module.buffers()) if each.is_floating_point()}
        return "" if kinds == {self._torch.float64} else f"the weights of {name} are not float64 alone"

    def _call(self, module: Any, survey: Survey, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        given = _Given(self._torch)
        known = _Known(self._torch)
        survey.change_kept(known.note)
        states = [each.get_state() for each in self._generators()]
        weights = NarrowWeights(module, compare=self._calls <= _COMPARED or self._calls % _SELDOM == 0)
        again = partial(self._plainly, survey, known, states, partial(inner, *args, **kwargs))
        try:
            self._inside, self._impossible = True, ""
            with weights:
                outputs = inner(*map_tensors(args, given.narrow), **map_tensors(kwargs, given.narrow))
                if isinstance(outputs, Iterator):
                    self._impossible = "outputs that come one by one are not made in the call"
                change_in_place(outputs, self._finite)
                if self._impossible:
                    raise RuntimeError(self._impossible)
        except Exception as error:
            if self._impossible or _TYPES.search(str(error)):
                return again(f"a call fails in float32: {error}")
            weights.write_back()
            given.write_back()
            raise  # of the script's own, or of whoever recomputes a part and has what it wants
        finally:
            self._inside = False
        given.write_back()
        survey.change_kept(known.widen)
        if weights.written:
            self._site.fail(f"{type(module).__name__} writes to its weights in forward()")
        self._site.hit("forward pass")
        return change_in_place(outputs, self._wide)

    def _plainly(self, survey: Survey, known: "_Known", states: list[Any], call: Callable[[], Any], reason: str) -> Any:
        """Make a call as it was, from the same random numbers, and leave all later ones so."""
        self._site.fail(reason)
        survey.change_kept(known.widen)
        for generator, state in zip(self._generators(), states, strict=True):
            generator.set_state(state)
        return call()

    def _generators(self) -> tuple[Any, ...]:
        devices = self._torch.cuda.default_generators if self._torch.cuda.is_initialized() else ()
        return (self._torch.default_generator, *devices)

    def _finite(self, tensor: Any) -> Any:
        """Note that a result is infinite or no number: numbers of that size or smallness need float64."""
        if not self._impossible and not bool(self._torch.isfinite(tensor.detach()).all()):
            self._impossible = "a result is not finite"
        return tensor

    def _wide(self, tensor: Any) -> Any:
        if tensor.dtype is self._torch.complex64:
            return tensor.to(self._torch.complex128)
        return tensor.double() if tensor.dtype is self._torch.float32 else tensor


class _Given:
    """What a call is given, in float32; what it writes there is written to the script's tensors."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._casts: dict[int, tuple[Any, Any]] = {}

    def narrow(self, tensor: Any) -> Any:
        if tensor.dtype is not self._torch.float64:
            return tensor
        if id(tensor) not in self._casts:
            self._casts[id(tensor)] = tensor, tensor.float()
        return self._casts[id(tensor)][1]

    def write_back(self) -> None:
        with self._torch.no_grad():
            for tensor, cast in self._casts.values():
                if cast._version:
                    tensor.copy_(cast)


class _Known:
    """The float32 tensors that modules keep before a call: those that are new afterwards were float64 without it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kept: dict[int, Any] = {}

    def note(self, tensor: Any) -> Any:
        if tensor.dtype is self._torch.float32:
            self._kept[id(tensor)] = tensor
        return tensor

    def widen(self, tensor: Any) -> Any:
        new = tensor.dtype is self._torch.float32 and id(tensor) not in self._kept
        return tensor.double() if new else tensor


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a model has parameters in float64 only."""
    wide = any(model.dtypes == ("float64",) for model in run.models)
    return ({},) if wide else Unfit("no model has parameters in float64 only")


def patch(site: "Site") -> None:
    """Compute every outermost trained module in float32."""
    site.outermost.around_forward(_Float32(site).around)


FIX = Fix(
    name="float32-compute",
    equivalence=Equivalence.PRECISION,
    phases=(Phase.FORWARD, Phase.BACKWARD),
    patch=patch,
    choices=choices,
    addresses=("CO002",),
    switchable=True,
    edit=(Unwritten(reason="find where float64 comes from, and have model and data be float32 there"),),
)
