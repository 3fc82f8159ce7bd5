"""The step of torch's optimizers without what torch looks at each time: groups, states and ways to compute.

Of small networks that is a good part of what is left of a step made in one pass. Whatever is unusual (a closure,
a state that is not there yet, settings that choose another way) is the business of torch's own step.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.optimizers.one_pass import OnePass

__all__ = ["ShortStep"]

_OTHER_WAYS = ("foreach", "fused", "capturable", "differentiable", "amsgrad")
_OF_STEPS = {"has_complex": False, "has_sparse_grad": False, "grad_scale": None, "found_inf": None}

_Given = tuple[tuple[list[Any], ...], dict[str, Any]]  # what torch's function would be called with


class ShortStep:
    """Stands for the step of one class, between its hooks and `OnePass`."""

    def __init__(
        self, kinds: Sequence[type], one_pass: OnePass, lists: Sequence[str], keeps: Callable[[dict[str, Any]], bool]
    ) -> None:
        """Take `lists` of each state, "" for one that stays empty; `keeps` tells whether a group has states.

        Groups without any are left to torch.
        """
        self._kinds, self._one_pass, self._lists, self._keeps = kinds, one_pass, lists, keeps
        module = sys.modules[one_pass.original.__module__]
        called = one_pass.original.__name__.removeprefix("_single_tensor_")
        self._way_there: tuple[tuple[Any, str], ...] = ((module, called), (module, one_pass.original.__name__))
        self._way_there += tuple((kind, "_init_group") for kind in kinds)
        self._seen = [getattr(*way, None) for way in self._way_there]

    def make(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the step for `original`, which makes those that are not short."""

        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs or type(optimizer) not in self._kinds or torch.compiler.is_dynamo_compiling():
                return original(optimizer, *args, **kwargs)
            before = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)
            try:
                done = self._step(optimizer)
            finally:
                torch._C._set_grad_enabled(before)
            return None if done else original(optimizer)

        return step

    def _step(self, optimizer: Any) -> bool:
        """Make the step of all groups, or nothing."""
        if hasattr(optimizer, "grad_scale") or hasattr(optimizer, "found_inf") or "_init_group" in vars(optimizer):
            return False
        if optimizer.defaults.get("differentiable"):
            return False
        if any(getattr(*way, None) is not seen for way, seen in zip(self._way_there, self._seen, strict=True)):
            return False  # somebody has put something else on the way to torch's loop
        ready = []
        for group in optimizer.param_groups:
            given = self._given(group, optimizer.state)
            if given is None:
                return False
            lists, settings = given
            if lists[0]:
                prepared = self._one_pass.prepared(lists, settings)
                if prepared is None:
                    return False
                ready.append((prepared, lists, settings))
        for prepared, lists, settings in ready:
            if not self._one_pass.carry_out(prepared, lists, settings):
                self._one_pass.original(*lists, **settings)
        return True

    def _given(self, group: dict[str, Any], states: Any) -> _Given | None:
        """Return what torch's step would call its function with; None where it would not, or looks at more."""
        names = self._one_pass.names
        if not names or not self._keeps(group) or any(group.get(name) for name in _OTHER_WAYS):
            return None
        lists: tuple[list[Any], ...] = ([], [], *([] for _ in self._lists))
        wanted = [(name, lists[place]) for place, name in enumerate(self._lists, 2) if name]
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            lists[0].append(parameter)
            lists[1].append(gradient)
            state = states.get(parameter)
            for name, values in wanted:
                if not state or state.get(name) is None:
                    return None
                values.append(state[name])
        beta1, beta2 = group.get("betas", (None, None))
        known = {**group, **_OF_STEPS, "beta1": beta1, "beta2": beta2}
        return (lists, {name: known[name] for name in names}) if known.keys() >= names else None
