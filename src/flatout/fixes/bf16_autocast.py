"""Run the model's forward and backward pass in bfloat16, with weights and outputs in float32.

## What it does

Every training call of the outermost module runs under `torch.autocast` with bfloat16. Every bfloat16 tensor that it
returns, however nested, is cast to float32, and so is every one that a module of the script's own keeps: in an
attribute, a buffer, a list, an object. Generators run under autocast, too, step by step. So the script's own code
computes the loss in float32. Weights, gradients of weights and optimizer state stay float32, and so do checkpoints.
Passes without gradients or in evaluation mode are left alone: validation runs as the script wrote it.

## Why it helps

Matrix products and convolutions read half the bytes and use units that are several times as fast as those for float32:
tensor cores on a GPU, AVX-512 or AMX instructions on a CPU that has them. On a CPU without such instructions it is
slower, and the trial shows that. On 2 cores of an AMD EPYC (torch 2.13), `flatout tune` confirmed 1.39x for the MNIST
example of pytorch/examples (1.24 to 1.56, n=12 pairs; `benchmarks/history/outside.jsonl`). On an H200 (torch 2.11), a
ResNet-18 of 224x224, channels-last, with 256 in a batch, gained 1.40x in its trial (1.37 to 1.42, n=4 pairs;
`python benchmarks/ladder.py`).

## How equal

PRECISION: products are rounded to 8 bits of mantissa and summed in float32; sums, softmax, normalization and losses
inside the module stay as autocast has them. Data, order and random streams are the same. Weights are cast anew at each
use (autocast's cache of cast weights is off): the cache loses gradients where a weight is first used under `no_grad`,
and it sums in bfloat16 the gradients of a weight that is used often.

## When it is wrong

A loss inside the module that needs more than 8 bits (`BCELoss` raises there, by torch's own rule) and custom autograd
functions that assume float32 do not work. A model that calls its own `.forward()` instead of the module stays float32.
Tensors that a forward pass puts where no module holds them (a global list, a closure) stay bfloat16. Left alone are
scripts that already run under autocast, models with parameters that are not float32, calls inside a transform of
`torch.func`, and models with hooks of the script's own on a module inside, which would see bfloat16.
"""

import contextlib
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import Autocast
from flatout.fixes.core.fix import Fix, Unfit
from flatout.fixes.model.kept_values import Survey, Surveys, change_in_place
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX"]

_DEVICES = ("cpu", "cuda")


class _Autocast:
    """Calls outermost modules under autocast."""

    def __init__(self, site: "Site") -> None:
        import torch

        self._site = site
        self._surveys = Surveys(site)
        self._bfloat16, self._float32 = torch.bfloat16, torch.float32
        self._autocast = torch.autocast
        self._is_on = torch.is_autocast_enabled
        self._transform = torch._C._functorch.peek_interpreter_stack
        self._suitable: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # module: first parameter

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        if module not in self._suitable:
            parameter = _parameter_for_all(module)
            self._suitable[module] = None if parameter is None else weakref.ref(parameter)
            if parameter is None:
                self._site.stand_back(f"the parameters of {type(module).__name__} are not float32 on one device")
        ref = self._suitable[module]
        parameter = None if ref is None else ref()
        if parameter is None or parameter.dtype is not self._float32:
            return inner
        device = parameter.device.type
        if device not in _DEVICES or self._is_on(device) or self._transform() is not None:
            if not self._site.stood_back:
                self._site.stand_back(self._why(module, device))
            return inner
        survey = self._surveys.of(module)
        if survey.hooked:
            self._site.fail(f"the script's own hook on {survey.hooked} would see bfloat16")
            return inner
        return partial(self._call, survey, inner, device)

    def _why(self, module: Any, device: str) -> str:
        if device not in _DEVICES:
            return f"{type(module).__name__} lies on {device}, which autocast is not used on here"
        why = "runs under autocast already" if self._is_on(device) else "is called inside a transform of torch.func"
        return f"{type(module).__name__} {why}"

    def _call(self, survey: Survey, inner: Callable[..., Any], device: str, *args: Any, **kwargs: Any) -> Any:
        try:
            with self._under(device):
                outputs = inner(*args, **kwargs)
        finally:
            survey.change_kept(self._in_float32)
        self._site.hit("forward pass")
        if isinstance(outputs, Iterator):
            return self._step_by_step(outputs, device)
        return change_in_place(outputs, self._in_float32)

    def _under(self, device: str) -> contextlib.AbstractContextManager[Any]:
        return self._autocast(device, dtype=self._bfloat16, cache_enabled=False)

    def _step_by_step(self, outputs: Any, device: str) -> Generator[Any, Any, Any]:
        """Yield what `outputs` yields, in float32; a generator is sent, thrown and closed what this one is."""
        step = partial(outputs.send, None) if hasattr(outputs, "send") else partial(next, outputs)
        while True:
            try:
                with self._under(device):
                    given = step()
            except StopIteration as end:
                return change_in_place(end.value, self._in_float32)
            try:
                sent = yield change_in_place(given, self._in_float32)
                step = partial(outputs.send, sent) if hasattr(outputs, "send") else partial(next, outputs)
            except GeneratorExit:
                getattr(outputs, "close", lambda: None)()
                raise
            except BaseException as error:
                if not hasattr(outputs, "throw"):
                    raise
                step = partial(outputs.throw, error)

    def _in_float32(self, tensor: Any) -> Any:
        return tensor.float() if tensor.dtype is self._bfloat16 else tensor


def _parameter_for_all(module: Any) -> Any:
    """Return one floating parameter when all of them are float32 on one device, else None."""
    import torch

    floating = [parameter for parameter in module.parameters() if parameter.is_floating_point()]
    kinds = {(parameter.dtype, parameter.device.type) for parameter in floating}
    if len(kinds) != 1 or floating[0].dtype is not torch.float32:
        return None
    return floating[0]


def patch(site: "Site") -> None:
    """Put autocast around every outermost trained module."""
    site.outermost.around_forward(_Autocast(site).around)


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a model has parameters in float32 only."""
    if any(model.dtypes == ("float32",) for model in run.models):
        return ({},)
    found = " and ".join(sorted({dtype for model in run.models for dtype in model.dtypes}))
    return Unfit(f"no model has parameters in float32 only{f' (found: {found})' if found else ''}")


FIX = Fix(
    name="bf16-autocast",
    equivalence=Equivalence.PRECISION,
    phases=(Phase.FORWARD, Phase.BACKWARD),
    patch=patch,
    choices=choices,
    addresses=("CO010",),
    switchable=True,
    edit=(Autocast(),),
)
