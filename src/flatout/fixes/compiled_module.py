"""Compile the outermost module in place: fewer and larger kernels, less Python.

## What it does

The call of every outermost module goes through `torch.compile`. The module itself stays what it is: no wrapper, no
`_orig_mod.` in the names of its weights, no trace in pickles and copies. Only training calls are compiled, and only for
input shapes that come often (three at most): a last, smaller batch runs uncompiled instead of compiling for minutes or
making the whole graph dynamic. `mode` is "default" or, on a GPU, "reduce-overhead" (CUDA graphs), whose outputs are
cloned because the next replay overwrites them.

## Why it helps

Chains of element-wise operations become one kernel that reads and writes memory once, and the Python between kernels is
gone. Matrix products and convolutions stay what they are. On 2 cores of an AMD EPYC (torch 2.13), `flatout tune`
confirmed 1.09x for a small nanoGPT (1.02 to 1.16, n=12 pairs; `benchmarks/history/outside.jsonl`); compiling paid off
after 4,406 steps. On an H200 (torch 2.11), a ResNet-18 in bfloat16, channels-last, gained 1.30x in its trial (1.29 to
1.31, n=4 pairs; `python benchmarks/ladder.py`).

The uncompiled graph is kept beside the compiled code, for what compiled code cannot do: a second derivative
(`create_graph=True`, Hessian products, gradient penalties), batched gradients, a graph walked again after one of its
weights was written to, a backward pass that fails to compile. There the same forward pass is repeated uncompiled, from
its inputs, random numbers and buffers, and gives the gradients: that call alone is slower than plain by one forward
pass. Graphs may be walked several times (`retain_graph=True`); for this, buffers of the backward pass are not reused
(torch's `donated_buffer`) while the fix is on, so memory can be a little higher. Inputs that only compiled code keeps
for its backward pass are copied first, so that the script may write to them.

## How equal

ROUNDING: fused kernels sum and contract in another order. Dropout and other random operations draw what they would
have drawn (`fallback_random`): measured on CPU (torch 2.13, n=1), outputs and random state after a compiled dropout
are bit-identical to those of the plain module.

## When it is wrong

Compiling takes from 10 s to minutes once per process; a short training does not earn that back, and the report says how
many steps it takes. Python values that forward depends on (a counter, a flag) make it recompile; after a few times
torch goes on uncompiled. Not compiled are direct calls of `.forward()`, and calls inside a transform of `torch.func`, a
non-reentrant checkpoint, a forward derivative or a mode that sees each operation. On a CPU it needs a C++ compiler.
What fails to compile runs as it is, each line once, and the fix is dropped. Modules that are already compiled or
scripted, and `DistributedDataParallel`, are left alone. `flatout patch` writes torch's own `compile`, without the
uncompiled graph beside it: a script that names `retain_graph`, `create_graph` or `autograd.functional` is not patched.
With gradient accumulation, CUDA graphs have summed gradients wrongly in some versions of torch: the trial compares
them. Both modes were tried on one H200 (`make test-gpu`, torch 2.11).
"""

import contextlib
import os
import shutil
import types
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import among
from flatout.fixes.core.edit import ModelLine, Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.fixes.model.graph_twins import TwinBackend
from flatout.fixes.model.nested_tensors import map_tensors
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence
from flatout.units import format_share

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX"]

_TWICE = "torch's compiled code fails where a graph is walked or differentiated twice"
_MOST_SHAPES = 3  # compiled for one module; torch itself gives up after 8
_OFTEN = 0.1  # share of the calls that a shape must have to be compiled
_CALLS_TO_TELL = 8  # of one module, before it is said that its shapes change
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
        if known.compiled is None or not _own_call(inner) or _seen_by_others():
            if known.compiled is not None:
                self._leave(module, "is watched operation by operation (a checkpoint, torch.func, a dispatch mode)")
            return inner
        return partial(self._call, module, known, inner)

    def _compile(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any] | None:
        import torch
        from torch._dynamo.eval_frame import OptimizedModule
        from torch._inductor import list_mode_options

        left_alone = (OptimizedModule, torch.jit.ScriptModule, torch.nn.parallel.DistributedDataParallel)
        if isinstance(module, left_alone):
            self._leave(module, f"is left alone, as every {_kind_of(module, left_alone)}")
            return None
        if not _own_call(inner):
            self._leave(module, "is called through what the script has compiled, or put before its call")
            return None
        own_code = types.FunctionType(_call_impl.__code__.replace(), _call_impl.__globals__)  # own limit of recompiles
        options = {**list_mode_options(self._mode), "fallback_random": True}
        backend = TwinBackend(_inductor, self._site.fail, copies=self._mode != "reduce-overhead")
        return torch.compile(own_code, dynamic=False, backend=backend, options=options)

    def _call(self, module: Any, known: _Module, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        shape = _shape((args, kwargs))
        if shape is None or not known.wants(shape):
            if not self._site.stood_back:
                self._tell(module, known, shape, (args, kwargs))
            return inner(*args, **kwargs)
        if not known.ready[shape]:
            return self._first_call(module, known, shape, args, kwargs)
        outputs = self._compiled(module, known, args, kwargs)
        self._site.hit("forward pass")
        return outputs

    def _tell(self, module: Any, known: _Module, shape: Any, given: Any) -> None:
        """Say why a call is not compiled, once that is no matter of the first few."""
        if shape is None:
            self._leave(module, f"is called with objects whose shapes are not known ({_unknown(given)})")
        elif known.calls >= _CALLS_TO_TELL and not known.ready:
            self._leave(
                module, f"is called with {len(known.seen)} shapes in {known.calls} calls, none of which comes often"
            )

    def _leave(self, module: Any, why: str) -> None:
        if not self._site.stood_back:
            self._site.stand_back(f"{type(module).__name__} {why}")

    def _compiled(self, module: Any, known: _Module, args: Any, kwargs: Any) -> Any:
        from torch._dynamo import config

        assert known.compiled is not None
        with config.patch(suppress_errors=True):  # 20 us: what cannot be compiled, then or now, runs as it is
            outputs = known.compiled(module, *args, **kwargs)
        return map_tensors(outputs, lambda tensor: tensor.clone()) if self._mode == "reduce-overhead" else outputs

    def _first_call(self, module: Any, known: _Module, shape: Any, args: Any, kwargs: Any) -> Any:
        outputs = self._compiled(module, known, args, kwargs)
        known.ready[shape] = True
        for tensor in (*module.parameters(), *module.buffers()):
            vars(tensor).pop("_dynamo_static_input_type", None)  # torch's mark, which would be pickled with the module
        self._site.hit("forward pass")
        return outputs


def _inductor(graph: Any, inputs: Any, *, options: Any) -> Any:
    """Compile as `torch.compile` does by itself."""
    import torch

    return torch._TorchCompileInductorWrapper(None, options, False)(graph, inputs)


def _own_call(inner: Callable[..., Any]) -> bool:
    """Return whether `inner` is a module's own call, and not what the script has compiled it to."""
    import torch

    return getattr(inner, "__func__", None) is torch.nn.Module._call_impl


def _seen_by_others() -> bool:
    """Return whether each operation is seen by something of the script's, which compiled code would pass by.

    Transforms of `torch.func`, forward derivatives, dispatch modes, and hooks on what is kept for the backward pass:
    a checkpoint, too, whose two passes must keep the same tensors.
    """
    import torch
    from torch.autograd import forward_ad

    hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore_tracing: None)
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or forward_ad._current_level >= 0
        or hooks(True) is not None
    )


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


def _unknown(value: Any) -> str:
    """Return the class of the first thing in `value` that has no shape for `_shape`."""
    if _shape(value) is not None:
        return ""
    if isinstance(value, list | tuple | dict):
        return next(filter(None, map(_unknown, value.values() if isinstance(value, dict) else value)), "")
    return type(value).__name__


def _kind_of(module: Any, kinds: tuple[type, ...]) -> str:
    return next(kind.__name__ for kind in kinds if isinstance(module, kind))


class _Kept:
    """Buffers of a backward pass that are not written over in it, so that it can be gone through again."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def on(self) -> None:
        import torch._functorch.config as config

        if hasattr(config, "donated_buffer"):  # torch 2.6 on
            self._stack.enter_context(config.patch(donated_buffer=False))

    def off(self) -> None:
        self._stack.close()


def patch(site: "Site", mode: str = "default") -> None:
    """Compile inside of what other fixes put around the module: under their autocast, with their layouts."""
    kept = _Kept()
    site.switch(kept.on, kept.off)
    site.outermost.around_forward(_Compiler(site, mode).around, innermost=True)


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where forward and backward dominate the step and something is there to compile with."""
    inputs = [STEP_PHASES.index(phase) for phase in (Phase.INPUT, Phase.TRANSFER)]
    total = sum(step.wall_ns - sum(step.phases_ns[at] for at in inputs) for step in run.steps)  # others cure the rest
    compute = [STEP_PHASES.index(phase) for phase in (Phase.FORWARD, Phase.BACKWARD)]
    share = sum(step.phases_ns[at] for step in run.steps for at in compute) / total if total else 0.0
    if not run.models or all(model.compiled for model in run.models):
        return Unfit("every model is compiled already" if run.models else "no module was called in the training")
    if share < _LEAST_SHARE:
        return Unfit(f"forward and backward take {format_share(share)} of the step without its input, less than half")
    if run.environment.device_kind == "cuda":
        return ({"mode": "default"}, {"mode": "reduce-overhead"})
    compilers = (os.environ.get("CXX", ""), "g++", "clang++")
    there = any(name and shutil.which(name) for name in compilers)
    return ({"mode": "default"},) if there else Unfit("no C++ compiler was found here (CXX, g++, clang++)")


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
            not_beside=dict.fromkeys(("retain_graph", "create_graph", "autograd.functional"), _TWICE),
        ),
        Unwritten(
            reason="CUDA graphs overwrite the outputs of the previous call, so they have to be copied at each call",
            when={"mode": "reduce-overhead"},
        ),
    ),
)
