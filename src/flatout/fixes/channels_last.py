"""Keep images and convolution weights in channels-last order, the order that fast convolution kernels work in.

## What it does

Weights of 2-D convolutions are laid out channels-last in place (the `Parameter` objects stay), optimizer state of the
same shape likewise, and 4-D floating-point inputs of the outermost module are converted at its call. 4-D outputs are
returned in the default order, so that the script's `.view()` of them works. What is pickled or saved (`torch.save` of
state dictionaries and whole modules, `pickle`, safetensors) is written in the default order with the default strides.

## Why it helps

Convolution kernels work channels-last inside (tensor cores, oneDNN). With channels-first tensors every convolution
converts its input and its output; with channels-last ones nothing is converted, and normalization and pooling between
convolutions read memory in order. Changed by hand, a small ResNet on the CPU takes steps 1.26x as fast (0.96 to 1.32,
n=3 rounds; 2 cores of an AMD EPYC, torch 2.13; `python benchmarks/cpu_resnet.py`). On an H200 (torch 2.11), a ResNet-18
of 224x224 with 256 in a batch gained 1.65x in the fix's trial (1.64 to 1.67, n=4 pairs; `python benchmarks/ladder.py`).

## How equal

ROUNDING: the same products, summed in another order. Shapes, weight values and indices mean the same as before.
Dropout and noise inside the model (`dropout`, `alpha_dropout`, `rand_like`, `randn_like`, `bernoulli`) fall on the
same elements: torch draws in memory order, so they are drawn in the default order, at the cost of a copy.

## When it is wrong

`.view(-1)` of a convolution's weight, of its gradient or of a feature map, and `parameters_to_vector`, do not work on
channels-last tensors: the first such line ends the fix, everything is put back in the default order, and the training
goes on as without it. Numbers drawn in place into a feature map (`torch.empty_like(x).normal_()`) fall on other
elements. Feature maps taken from inside the outermost module (by hooks, by calls of inner modules) are channels-last.
Where the script makes gradients itself, torch warns once of their layout. For an optimizer that the script made with
`fused=True`, gradients and optimizer state are put into the memory layout of the weights, because torch's fused CPU
code mixes up elements if the layouts differ. Not applied to models wrapped in `DistributedDataParallel`, whose gradient
buckets have their layout already, nor to models that are already channels-last. Networks with group normalization can
be slower.
"""

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import ModelLine
from flatout.fixes.core.fix import Fix, Unfit
from flatout.fixes.model.default_order import DefaultOrder
from flatout.fixes.model.nested_tensors import map_tensors
from flatout.fixes.model.optimizer_layout import OptimizerLayout
from flatout.fixes.model.saved_strides import usual_strides, write_usual_strides
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX"]


class _ChannelsLast:
    """The weights that are laid out anew, and what follows from that."""

    def __init__(self, site: "Site") -> None:
        import torch
        from torch.utils.weak import WeakIdKeyDictionary

        self._site = site
        self._last = torch.channels_last
        self._converted: Any = WeakIdKeyDictionary()  # the weights laid out by us
        self._acts: weakref.WeakKeyDictionary[Any, tuple[int, bool]] = weakref.WeakKeyDictionary()  # module: at a turn
        self._turn = 0  # how often layouts have changed
        self.shapes: set[Any] = set()  # of the weights: what has one of them is written in the usual order
        self.moments = OptimizerLayout(self._converted, site.fail)
        self._order = DefaultOrder(site, self._converted)

    # -- weights ------------------------------------------------------------------------------------------------

    def apply(self, module: Any) -> None:
        """Lay the weights of the module's convolutions out channels-last."""
        import torch

        weights = _convolution_weights(module)
        if why := self._refusal(weights, isinstance(module, torch.nn.parallel.DistributedDataParallel)):
            self._site.stand_back(f"{type(module).__name__} {why}")
            return
        for weight in weights:
            self.shapes.add(weight.shape)
            self._converted[weight] = True
            weight.data = weight.data.to(memory_format=self._last)  # of one channel or pixel, too, as `Module.to` does
        self._turn += 1
        self._site.hit("weights")

    def _refusal(self, weights: list[Any], in_ddp: bool) -> str:
        """Return why a module is left alone, an empty string where it is not."""
        if not weights:
            return "has no 2-D convolutions"
        if in_ddp:
            return "has gradient buckets whose layout is fixed already"
        last = any(self._is_last(weight) for weight in weights if weight not in self._converted)
        return "is channels-last already" if last else ""

    def revert(self, module: Any) -> None:
        """Put the weights of the module back in the usual order."""
        for weight in _convolution_weights(module):
            if self._converted.pop(weight, False):
                weight.data = usual_strides(weight.data)
        self._turn += 1

    # -- inputs and outputs -------------------------------------------------------------------------------------

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Convert what the module takes, where its weights are channels-last by us."""
        turn, acts = self._acts.get(module, (-1, False))
        if turn != self._turn:
            acts = any(weight in self._converted for weight in _convolution_weights(module))
            self._acts[module] = (self._turn, acts)
        return partial(self._call, inner) if acts else inner

    def _call(self, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found: list[bool] = []  # for each image among the inputs: whether it was channels-last already

        def convert(tensor: Any) -> Any:
            if tensor.dim() != 4 or not tensor.is_floating_point():
                return tensor
            found.append(self._is_last(tensor))
            return tensor.contiguous(memory_format=self._last)

        args, kwargs = map_tensors(args, convert), map_tensors(kwargs, convert)
        order = self._order
        order.acts = not any(found)
        order.inside += 1
        try:
            outputs = inner(*args, **kwargs)
        finally:
            order.inside -= 1
        return outputs if any(found) else map_tensors(outputs, self._usual)

    def _usual(self, tensor: Any) -> Any:
        return tensor.contiguous() if tensor.dim() == 4 and self._is_last(tensor) else tensor

    def _is_last(self, tensor: Any) -> bool:
        if tensor.dim() != 4 or tensor.is_contiguous():
            return False
        return bool(tensor.is_contiguous(memory_format=self._last))


def _convolution_weights(module: Any) -> list[Any]:
    """Return the 4-D weights of the convolutions below `module`, each once."""
    import torch

    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    weights = [getattr(inner, "weight", None) for inner in module.modules() if isinstance(inner, kinds)]
    lazy = torch.nn.parameter.is_lazy
    found = [each for each in weights if isinstance(each, torch.nn.Parameter) and not lazy(each) and each.dim() == 4]
    return list({id(weight): weight for weight in found}.values())


def patch(site: "Site") -> None:
    """Convert weights, inputs and optimizer state; write files as they would have been."""
    layout = _ChannelsLast(site)
    site.outermost.each(layout.apply, layout.revert)
    site.outermost.around_forward(layout.around, always=True)
    site.switch(layout.moments.follow, layout.moments.leave)
    write_usual_strides(site, layout.shapes)


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where a model has 2-D convolutions."""
    kinds = ("Conv2d", "ConvTranspose2d")
    convolves = any(kind in model.module_types for model in run.models for kind in kinds)
    return ({},) if convolves else Unfit("no model has 2-D convolutions")


FIX = Fix(
    name="channels-last",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.FORWARD, Phase.BACKWARD),
    patch=patch,
    choices=choices,
    addresses=("CO011",),
    switchable=True,
    edit=(
        ModelLine(
            code="{model}.to(memory_format=torch.channels_last)",
            unless=("channels_last", "DistributedDataParallel"),
            not_beside={"fused=True": "torch's fused optimizers mix up elements of channels-last weights"},
            no_views=True,
        ),
    ),
)
