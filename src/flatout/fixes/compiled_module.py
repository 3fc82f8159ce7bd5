"""Compile the outermost module in place: fewer and larger kernels, less Python.

## What it does
The call of every outermost module goes through `torch.compile`. The module itself stays what it is: no wrapper, no
`_orig_mod.` in the names of its weights, pickles and copies without a trace. Only training calls are compiled, and
only for shapes of inputs that come often (three at most): a last, smaller batch runs as ever instead of compiling for
minutes or turning the whole graph dynamic. `mode` is "default" or, on a GPU, "reduce-overhead" (CUDA graphs), whose
outputs are cloned since the next replay overwrites them.

## Why it helps
Chains of element-wise operations become one kernel that reads and writes memory once, and the Python between kernels
is gone. Matrix products and convolutions stay what they are.

## How equal
ROUNDING: fused kernels sum and contract in another order. Dropout and other random operations draw what they would
have drawn (`fallback_random`): measured on CPU (torch 2.13, n=1), outputs and random state after a compiled dropout
equal those of the plain module bit for bit.

## When it is wrong
Compiling takes from 10 s to minutes once a process; a short training does not earn that back, and the report says how
many steps it takes. Values that forward takes from Python (a counter, a flag) make it compile again; after a few times
torch goes on uncompiled. `.forward()` called directly is not compiled. On a CPU it needs a C++ compiler. Where
compiling fails, the call is made as ever and the fix is dropped. Modules that are compiled or scripted already and
`DistributedDataParallel` are left alone. CUDA graphs have summed gradients wrongly in some versions of torch when
gradients were accumulated: the trial compares them. Both modes were tried on one H200 (`make test-gpu`, torch 2.11).
"""

import os
import shutil
import types
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from flatout.fixes.bounds import among
from flatout.fixes.edit import ModelLine, Unwritten
from flatout.fixes.fix import Fix
from flatout.fixes.nested import map_tensors
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.site import Site

__all__ = ["FIX"]

_MOST_SHAPES = 3  # compiled for one module; torch itself gives up after 8
_OFTEN = 0.1  # share of the calls that a shape must have to be compiled
_MOST_KNOWN = 256  # shapes counted for one module
_LEAST_SHARE = 0.5  # of the step without its input in forward and backward: else compiling has nothing to win


class _Module:
    """What is known of one outermost module: its compiled call and the shapes it was called with."""

    def __init__(self, compiled: Callable[..., Any] | None) -> None:
        self.compiled = compiled  # None: leave it alone
        self.calls = 0
        self.seen: dict[Any, int] = {}
        self.ready: dict[Any, bool] = {}  # shapes to compile: whether that has worked

    def wants(self, shape: Any) -> bool:
        """Count one call; return whether calls of this shape are compiled."""
        self.calls += 1
        if shape in self.ready:
            return True
        if len(self.ready) >= _MOST_SHAPES or (shape not in self.seen and len(self.seen) >= _MOST_KNOWN):
            return False
        self.seen[shape] = self.seen.get(shape, 0) + 1
        if self.seen[shape] < 2 or self.seen[shape] < _OFTEN * self.calls:
            return False
        self.ready[shape] = False
        return True


class _Compiler:
    """Calls outermost modules through their compiled call."""

    def __init__(self, site: "Site", mode: str) -> None:
        self._site = site
        self._mode = mode
        self._known: weakref.WeakKeyDictionary[Any, _Module] = weakref.WeakKeyDictionary()

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        if module not in self._known:
            self._known[module] = _Module(self._compile(module, inner))
        known = self._known[module]
        return inner if known.compiled is None else partial(self._call, module, known, inner)

    def _compile(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any] | None:
        import torch
        from torch._dynamo.eval_frame import OptimizedModule
        from torch._inductor import list_mode_options

        left_alone = (OptimizedModule, torch.jit.ScriptModule, torch.nn.parallel.DistributedDataParallel)
        if isinstance(module, left_alone) or getattr(inner, "__func__", None) is not torch.nn.Module._call_impl:
            return None
        own_code = types.FunctionType(_call_impl.__code__.replace(), _call_impl.__globals__)  # own limit of recompiles
        options = {**list_mode_options(self._mode), "fallback_random": True}
        return torch.compile(own_code, dynamic=False, options=options)

    def _call(self, module: Any, known: _Module, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        shape = _shape((args, kwargs))
        if shape is None or not known.wants(shape):
            return inner(*args, **kwargs)
        if not known.ready[shape]:
            return self._first_call(module, known, shape, inner, args, kwargs)
        outputs = self._compiled(module, known, args, kwargs)
        self._site.hit("forward pass")
        return outputs

    def _compiled(self, module: Any, known: _Module, args: Any, kwargs: Any) -> Any:
        assert known.compiled is not None
        outputs = known.compiled(module, *args, **kwargs)
        return map_tensors(outputs, lambda tensor: tensor.clone()) if self._mode == "reduce-overhead" else outputs

    def _first_call(self, module: Any, known: _Module, shape: Any, inner: Any, args: Any, kwargs: Any) -> Any:
        """Compile; where that fails, call the module as ever, from the random state and the buffers it had."""
        before = _State(module)
        try:
            outputs = self._compiled(module, known, args, kwargs)
        except Exception as error:
            before.put_back()
            outputs = inner(*args, **kwargs)  # an error of the script's own comes again
            self._site.fail(error)
            return outputs
        known.ready[shape] = True
        for tensor in (*module.parameters(), *module.buffers()):
            vars(tensor).pop("_dynamo_static_input_type", None)  # torch's mark, which would be pickled with the module
        self._site.hit("forward pass")
        return outputs


def _call_impl(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


def _shape(value: Any) -> Any:
    """Return shapes and types of the tensors in `value` and its plain values, None where something else is in it."""
    import torch

    if isinstance(value, torch.Tensor):
        return (value.shape, value.dtype, value.device, value.requires_grad)
    if isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        found = [(name, _shape(item)) for name, item in items]
        return None if any(shape is None for _, shape in found) else (type(value), tuple(found))
    return (value,) if value is None or isinstance(value, bool | int | float | str) else None


class _State:
    """Random states and buffers, before a call that may have to be made again."""

    def __init__(self, module: Any) -> None:
        import torch

        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]

    def put_back(self) -> None:
        import torch

        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)


def patch(site: "Site", mode: str = "default") -> None:
    """Compile inside of what other fixes put around the module: under their autocast, with their layouts."""
    site.around_forward(_Compiler(site, mode).around, innermost=True)


def choices(run: Run) -> tuple[dict[str, object], ...]:
    """Offer it where forward and backward dominate the step and something is there to compile with."""
    inputs = [STEP_PHASES.index(phase) for phase in (Phase.INPUT, Phase.TRANSFER)]
    total = sum(step.wall_ns - sum(step.phases_ns[at] for at in inputs) for step in run.steps)  # others cure the rest
    compute = [STEP_PHASES.index(phase) for phase in (Phase.FORWARD, Phase.BACKWARD)]
    share = sum(step.phases_ns[at] for step in run.steps for at in compute) / total if total else 0.0
    if share < _LEAST_SHARE or not run.models or all(model.compiled for model in run.models):
        return ()
    if run.environment.device_kind == "cuda":
        return ({"mode": "default"}, {"mode": "reduce-overhead"})
    compilers = (os.environ.get("CXX", ""), "g++", "clang++")
    return ({"mode": "default"},) if any(name and shutil.which(name) for name in compilers) else ()


FIX = Fix(
    name="compiled-module",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.FORWARD, Phase.BACKWARD),
    patch=patch,
    bounds={"mode": among("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")},
    choices=choices,
    switchable=True,
    addresses=("CO013",),
    settles_s=120.0,
    least=1 / (1 - _LEAST_SHARE),
    usual_s=30.0,  # 30.2 s for the small ResNet of benchmarks/cpu_resnet.py on 2 cores
    edit=(
        ModelLine(
            code='{model}.compile(dynamic=False, options={{"fallback_random": True}})',
            unless=("torch.compile", "torch.jit", "DistributedDataParallel", "{model}.compile(", "torch.func"),
        ),
        Unwritten(
            reason="CUDA graphs overwrite the outputs of the call before, which have to be copied at each call",
            when={"mode": "reduce-overhead"},
        ),
    ),
)
