"""Update all weights in one pass of compiled code, where the script's optimizer loops over them in Python.

## What it does

While an optimizer of torch makes its step, its groups ask for the implementation `fused` (Adam, AdamW, SGD, Adagrad) or
`foreach` (these and Adadelta, Adamax, ASGD, NAdam, RAdam, RMSprop, Rprop); before and after the step they are as the
script left them. So `state_dict()`, pickles and `load_state_dict()` never see it, and checkpoints keep the script's own
flags. The `step` counters of a fused step on a GPU are on the device during the step and on the host outside of it.

## Why it helps

The loop makes several small calls for every weight tensor. `fused` reads and writes each weight, gradient and moment
once; `foreach` makes few calls for lists of tensors. With `fused=True` set by hand, Adam on the MNIST guide's network
takes its step 2.54x as fast as the loop (2.52 to 2.65), and the training 1.32x (1.32 to 1.38); with a transformer of
3.2 million weights 2.57x (2.50 to 2.63) and 1.09x (1.03 to 1.19). These are medians of n=4 turns on 2 cores of an AMD
EPYC (torch 2.13; `python benchmarks/optimizer_steps.py`).

## How equal

ROUNDING. Measured on CPU (torch 2.13, x86-64, 40 steps, n=1 each): `foreach` is bit-identical to the loop for all
but NAdam, RAdam and ASGD; `fused` is bit-identical for SGD without momentum, and differs in the last bit for SGD
with momentum, Adam, AdamW and Adagrad (at most 6e-8 after 40 steps).

## When it is wrong

Left alone are subclasses, optimizers from elsewhere, and groups that ask for `fused` or `foreach` themselves, are
differentiable or capturable, or have a tensor as learning rate, sparse gradients or parameters that are not floating.
Where gradients or moments lie in memory in another order than their weight (channels-last weights, a checkpoint just
loaded), the step is the script's own: torch's fused CPU code (2.13) silently mixes up their elements.
Under a gradient scaler the scaler still looks for infinities itself, so on a GPU a step waits once.
Tried on one H200 (`make test-gpu`, torch 2.11).
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import among
from flatout.fixes.core.edit import OptimizerArgument
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX"]

_FUSED = ("Adagrad", "Adam", "AdamW", "SGD")
_FOREACH = (*_FUSED, "ASGD", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
_LEFT_ALONE = ("fused", "foreach", "differentiable", "capturable")


class _Faster:
    """Steps of one optimizer class with another implementation."""

    def __init__(self, site: "Site", kind: Any, implementation: str) -> None:
        import torch

        self._site = site
        self._kind = kind
        self._float32, self._default_dtype = torch.float32, torch.get_default_dtype
        self._compiling = torch.compiler.is_dynamo_compiling
        self._implementation = implementation
        self._flags = {name: name == implementation for name in ("fused", "foreach")}
        self._counters = _HostCounters()

    def make(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the class's step with the flags set while it runs."""

        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if type(optimizer) is not self._kind or self._compiling():
                if not self._site.stood_back:
                    why = "is compiled" if self._compiling() else f"is no {self._kind.__name__} of torch's itself"
                    self._site.stand_back(f"the step of {type(optimizer).__name__} {why}")
                return original(optimizer, *args, **kwargs)
            groups = [group for group in optimizer.param_groups if self._suits(group, optimizer.state)]
            if not groups or self._default_dtype() is not self._float32:  # else counters would have another type
                if not self._site.stood_back:
                    self._site.stand_back(f"{self._kind.__name__}: {self._why(optimizer)}")
                return original(optimizer, *args, **kwargs)
            before = [{name: group[name] for name in self._flags if name in group} for group in groups]
            with self._counters.on_device(optimizer, groups if self._implementation == "fused" else []):
                for group in groups:
                    group.update((name, value) for name, value in self._flags.items() if name in group)
                try:
                    result = original(optimizer, *args, **kwargs)
                finally:
                    for group, flags in zip(groups, before, strict=True):
                        group.update(flags)
            self._site.hit(f"{self._kind.__name__}.step")
            return result

        return step

    def _why(self, optimizer: Any) -> str:
        """Return why no group of `optimizer` is updated in another way."""
        if self._default_dtype() is not self._float32:
            return f"torch's default type is {str(self._default_dtype()).removeprefix('torch.')}, not float32"
        groups = optimizer.param_groups
        asked = sorted({name for group in groups for name in _LEFT_ALONE if group.get(name)})
        if asked:
            return f"the script asks for {' and '.join(f'{name}=True' for name in asked)} itself"
        parameters = [each for group in groups for each in group["params"] if each.grad is not None]
        if any(each.grad.is_sparse for each in parameters):
            return f"gradients are sparse, and torch has no {self._implementation} step of these"
        odd = [each for each in parameters if not each.is_floating_point() or each.grad.dtype is not each.dtype]
        if odd:
            return f"a parameter is {str(odd[0].dtype).removeprefix('torch.')}, its gradient {odd[0].grad.dtype}"
        laid_out = all(_suits(each, optimizer.state.get(each)) for each in parameters)
        return "a setting is a tensor" if laid_out else "gradients or moments lie in another order than their weights"

    def _suits(self, group: dict[str, Any], state: Any) -> bool:
        if self._implementation not in group or any(group.get(name) for name in _LEFT_ALONE):
            return False
        settings = (value for name, value in group.items() if name != "params")
        if any(hasattr(each, "dtype") for value in settings for each in (value if type(value) is tuple else (value,))):
            return False  # a learning rate or another setting that is a tensor
        return all(_suits(parameter, state.get(parameter)) for parameter in group["params"])


def _suits(parameter: Any, state: dict[str, Any] | None) -> bool:
    """Return whether the parameter can be updated so; fused code reads memory in order and never asks for strides."""
    gradient = parameter.grad
    if gradient is None:
        return True
    if not parameter.is_floating_point() or gradient.is_sparse or gradient.dtype is not parameter.dtype:
        return False
    with_it = [gradient, *(value for value in (state or {}).values() if hasattr(value, "is_contiguous"))]
    if parameter.is_contiguous():
        return all(each.is_contiguous() for each in with_it)
    if not parameter.permute(_by_stride(parameter)).is_contiguous():
        return False
    return all(each.stride() == parameter.stride() for each in with_it if each.dim())


def _by_stride(tensor: Any) -> list[int]:
    """Return the dimensions, those with the longest stride first: so a dense tensor lies in memory."""
    strides = tensor.stride()
    return sorted(range(len(strides)), key=lambda dimension: (-strides[dimension], dimension))


class _HostCounters:
    """The `step` counters of fused steps on a GPU: on the device while a step runs, else on the host as the loop's."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, dict[int, tuple[float, Any]]] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def on_device(self, optimizer: Any, groups: list[dict[str, Any]]) -> Iterator[None]:
        """Hold the counters of `groups` on the device inside; afterwards host counters are one higher."""
        import torch

        parameters = [each for group in groups for each in group["params"] if each.grad is not None and not each.is_cpu]
        hosts = [optimizer.state.get(each, {}).get("step") for each in parameters]
        known = self._known.setdefault(optimizer, {}) if parameters else {}
        for parameter, host in zip(parameters, hosts, strict=True):
            if host is None or not host.is_cpu:
                continue
            count, device = known.get(id(parameter), (-1.0, None))
            if count != float(host) or device.device != parameter.device:
                device = host.to(parameter.device)
            optimizer.state[parameter]["step"] = device
        stepped = 0
        try:
            yield
            stepped = 1
        finally:
            for parameter, host in zip(parameters, hosts, strict=True):
                state = optimizer.state.get(parameter, {})
                device = state.get("step")
                if device is None or (host is not None and not host.is_cpu):
                    continue
                state["step"] = torch.tensor(0.0) if host is None else host
                state["step"] += stepped
                known[id(parameter)] = (float(state["step"]), device)


def patch(site: "Site", implementation: str = "fused") -> None:
    """Set the implementation for the length of each step of torch's own optimizers."""
    import torch

    for name in _FUSED if implementation == "fused" else _FOREACH:
        site.wrap(f"torch.optim:{name}.step", _Faster(site, getattr(torch.optim, name), implementation).make)


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer `fused` where an optimizer has it and does not use it, `foreach` where one loops."""
    fused = any(each.fused_available and each.implementation != "fused" for each in run.optimizers)
    loops = any(each.from_torch and each.implementation == "loop" for each in run.optimizers)
    offered = [name for name, there in (("fused", fused), ("foreach", loops)) if there]
    names = ", ".join(sorted({each.name for each in run.optimizers}))
    has = f"{names}: no step that fused or foreach would shorten" if names else "no optimizer made a step"
    return tuple({"implementation": name} for name in offered) or Unfit(has)


FIX = Fix(
    name="fused-optimizer",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.OPTIMIZER,),
    patch=patch,
    bounds={"implementation": among("fused", "foreach")},
    choices=choices,
    addresses=("CO001", "CO013"),
    switchable=True,
    edit=(
        OptimizerArgument(
            kinds={"fused": _FUSED, "foreach": _FOREACH},
            refuses=("differentiable", "capturable"),
            not_beside={"channels_last": "torch's fused code mixes up elements of channels-last weights"},
        ),
    ),
)
