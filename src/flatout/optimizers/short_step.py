"""The step of torch's optimizers without what torch looks at each time: groups, states and ways to compute.

Of small networks that is a good part of what is left of a step made in one pass. Whatever is unusual (a closure,
a state that is not there yet, settings that choose another way) is the business of torch's own step.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.optimizers import _steps as compiled
from flatout.optimizers.one_pass import OnePass, stands_for

__all__ = ["ShortStep"]

_OTHER_WAYS = ("foreach", "fused", "capturable", "differentiable", "amsgrad")
_STATES = (dict, defaultdict)  # others may give something else than what lies in them
_OF_STEPS = {"has_complex": False, "has_sparse_grad": False, "grad_scale": None, "found_inf": None}

_Given = tuple[tuple[list[Any], ...], dict[str, Any]]  # what torch's function would be called with


class ShortStep:
    """Stands for the step of one class, between its hooks and `OnePass`."""

    def __init__(
        self,
        kinds: Sequence[type],
        one_pass: OnePass,
        lists: tuple[str, ...],
        keeps: Callable[[dict[str, Any]], bool],
    ) -> None:
        """Take `lists` of each state, "" for one that stays empty; `keeps` tells whether a group has states.

        Groups without any are left to torch.
        """
        self._kinds, self._one_pass, self._lists, self._keeps = kinds, one_pass, lists, keeps
        module = sys.modules[one_pass.original.__module__]
        called = one_pass.original.__name__.removeprefix("_single_tensor_")
        way_there: list[tuple[Any, str]] = [(module, called), (module, one_pass.original.__name__)]
        way_there += [(kind, "_init_group") for kind in kinds]
        self._seen = [(*place, getattr(*place, None)) for place in way_there]

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
        if not self._leads_here():
            return False
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

    def _leads_here(self) -> bool:
        """Tell whether nobody has put something else on the way to torch's loop."""
        for owner, name, seen in self._seen:
            found = getattr(owner, name, None)
            while found is not seen:  # another of ours may stand before it
                if found is None:
                    return False
                found = stands_for(found)
        return True

    def _given(self, group: dict[str, Any], states: Any) -> _Given | None:
        """Return what torch's step would call its function with; None where it would not, or looks at more."""
        names = self._one_pass.names
        if not names or not self._keeps(group) or any(map(group.get, _OTHER_WAYS)):
            return None
        lists = compiled.collect(group["params"], states, self._lists) if type(states) in _STATES else None
        if lists is None:
            return None
        beta1, beta2 = group.get("betas", (None, None))
        known = {**group, **_OF_STEPS, "beta1": beta1, "beta2": beta2}
        return (lists, {name: known[name] for name in names}) if known.keys() >= names else None
