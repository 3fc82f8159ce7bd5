"""Freeze the parameters whose gradients no optimizer reads; on request, for a script may ask for them at its end.

## What it does

Looks at the graphs of three early backward passes, as the recording did (CO022): parameters that get gradients, that no
optimizer in the process holds, and whose values stay. From the tenth pass on they ask for no gradients
(`requires_grad_(False)`). The backward pass then ends before them, and a frozen part without anything trained before it
records no graph. To Python they go on to say that `requires_grad` is True: copies, pickles and optimizers that are made
later get what they would.

## Why it helps

A pretrained encoder under a new head costs a backward pass that leads to nothing, and gradients as large as its
weights. Its gain is not measured yet.

## How equal

BITWISE: losses, and all weights and gradients that an optimizer has. Gradients that nobody reads are missing, which is
the gain. It stands back where the script reads these gradients in the first passes (clips them with others, logs them),
sets them to None, hooks tensors, or asks activations for `requires_grad`. A script that asks for one of them later
stops with a line that says so, before anything is wrong; with `on_change="warn"` it goes on with what is there. An
optimizer that gets these parameters later has their gradients, once they were cleared.

## When it is wrong

Where gradients are asked for seldom, every thousand steps or at the end: the training stops there. Leave it out then,
or freeze these parameters in your code. It does not act with several processes, where a model is compiled, or beside
checkpoints of torch's older, reentrant kind.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import ON_CHANGE
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site
    from flatout.fixes.model.frozen_gradients import FrozenGradients

__all__ = ["FIX", "choices", "patch"]

_HOOKS = ("torch:Tensor.register_hook", "torch:Tensor.retain_grad", "torch:Tensor.register_post_accumulate_grad_hook")
_MODULE_HOOKS = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook")


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where the recording saw gradients that no optimizer reads, in one process that compiles nothing."""
    found = run.causes.unused_gradients if run.causes else None
    if found is None:
        return Unfit("an optimizer reads every gradient, as far as was seen")
    if len(run.ranks) > 1 or any(model.replicas > 1 for model in run.models):
        return Unfit("other ranks wait for these gradients")
    if any(model.compiled for model in run.models):
        return Unfit("a model is compiled, and would be compiled anew")
    return ({},)


def patch(site: "Site", *, on_change: str = "stop") -> None:
    """Freeze such parameters once the first backward passes have shown them."""
    import torch

    from flatout.fixes.core.site import describe, say
    from flatout.fixes.model.frozen_gradients import FrozenGradients, grad_descriptor, requires_grad_descriptor

    def failed(reason: str) -> None:
        say(site, reason)
        site.fail(reason)

    frozen = FrozenGradients(failed, on_change)
    passes = _Passes(site, frozen)
    site.wrap("torch.autograd:backward", passes.around)
    site.wrap("torch.autograd:grad", lambda original: _checked(frozen, original, 1, "inputs"))
    for seam in _HOOKS:
        site.wrap(seam, passes.hooking)
    for name in _MODULE_HOOKS:
        site.wrap(f"torch.nn.modules.module:Module.{name}", passes.hooking_modules)
    for seam in ("torch.nn.parallel:DistributedDataParallel.__init__", "torch:compile"):
        site.wrap(seam, passes.releasing)
    site.wrap("torch.optim.optimizer:Optimizer.add_param_group", passes.handing_over)
    site.wrap("torch:Tensor.requires_grad_", passes.asking)
    describe(site, torch.Tensor, "grad", functools.partial(grad_descriptor, frozen))
    describe(site, torch.Tensor, "requires_grad", functools.partial(requires_grad_descriptor, frozen))
    site.switch(lambda: None, frozen.release)


class _Passes:
    """What is done at backward passes, and at what may need them."""

    def __init__(self, site: "Site", frozen: "FrozenGradients") -> None:
        from flatout.probe.model.unused_gradients import GradientWatch, living_optimizers

        self._site, self._frozen = site, frozen
        self._number = 1
        self._watch = GradientWatch(site.fail, living_optimizers)

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `torch.autograd.backward` that looks at the first graphs."""
        checked = _checked(self._frozen, original, 5, "inputs")

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            from flatout.probe.model.unused_gradients import LOOKED

            if self._number <= LOOKED:
                self._look(tensors)
            elif self._frozen.parameters and not _leads_anywhere(tensors):
                self._frozen.stop("a backward pass began from what only leads to parameters that are not trained")
            result = checked(tensors, *args, **kwargs)
            self._frozen.after_backward()
            if self._frozen.parameters:
                self._site.hit("backward pass")
            return result

        return backward

    def _look(self, tensors: Any) -> None:
        from flatout.probe.model.unused_gradients import LOOKED

        self._watch.step(None, self._number)
        self._number += 1
        if self._number <= LOOKED:
            self._watch.backward(tensors)
            return
        found = self._watch.freezable()
        reason = "an optimizer reads every gradient, or the script sets them to None" if not found else ""
        reason = reason or _hooked_modules() or self._frozen.freeze(found)
        if reason:
            self._site.stand_back(reason)

    def hooking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what notes hooks of tensors."""

        def hook(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            self._frozen.seen = self._frozen.seen or "the script hooks tensors"
            if self._frozen.parameters and (self._frozen.has(tensor) or not tensor.requires_grad):
                self._frozen.stop("a tensor without gradients was hooked")
            return original(tensor, *args, **kwargs)

        return hook

    def hooking_modules(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what notes hooks of the backward passes of modules."""

        def hook(*args: Any, **kwargs: Any) -> Any:
            self._frozen.seen = self._frozen.seen or "the script hooks backward passes of modules"
            self._frozen.release()
            return original(*args, **kwargs)

        return hook

    def releasing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is done with parameters that ask for gradients."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._frozen.seen = self._frozen.seen or "the script compiles or distributes a model"
            self._frozen.release()
            return original(*args, **kwargs)

        return call

    def handing_over(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what gives an optimizer parameters, which ask for gradients again."""

        def add(optimizer: Any, group: Any) -> Any:
            result = original(optimizer, group)
            if any(map(self._frozen.has, optimizer.param_groups[-1]["params"])):
                self._frozen.release()
            return result

        return add

    def asking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what freezes a tensor, or lets it learn, as the script asks."""

        def ask(tensor: Any, requires_grad: bool = True) -> Any:
            return tensor if self._frozen.asked(tensor, requires_grad) else original(tensor, requires_grad)

        return ask


def _checked(frozen: "FrozenGradients", original: Callable[..., Any], place: int, name: str) -> Callable[..., Any]:
    """Return a function of gradients that looks for which tensors they are asked."""

    def call(*args: Any, **kwargs: Any) -> Any:
        inputs = kwargs.get(name, args[place] if len(args) > place else None)
        some = inputs if isinstance(inputs, list | tuple) else [inputs]
        frozen.needs(*some)
        return original(*args, **kwargs)

    return call


def _leads_anywhere(tensors: Any) -> bool:
    import torch

    some = tensors if isinstance(tensors, list | tuple) else [tensors]
    return all(not isinstance(one, torch.Tensor) or one.grad_fn is not None for one in some)


def _hooked_modules() -> str:
    """Return that the script hooks backward passes of modules, an empty string where it does not."""
    import gc

    import torch

    found = [vars(one) for one in gc.get_objects() if torch.nn.Module in type(one).__mro__]
    hooked = any(one.get(name) for one in found for name in ("_backward_hooks", "_backward_pre_hooks"))
    return "the script hooks backward passes of modules" if hooked else ""


FIX = Fix(
    name="frozen-parameters",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.FORWARD, Phase.BACKWARD),
    patch=patch,
    choices=choices,
    bounds={"on_change": ON_CHANGE},
    addresses=("CO022",),
    on_request=True,
    edit=(Unwritten(reason="call `requires_grad_(False)` on what is not trained, where the model is made"),),
)
