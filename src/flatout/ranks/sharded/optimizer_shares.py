"""Optimizers that step the shares of this rank: each value is stepped by itself, so shares give what the whole gives.

Their state is that of shares. A state dict is that of one process: put together where it is asked for, and taken apart
where one is loaded.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.group import Together
from flatout.ranks.sharded.memory import MemoryAccount
from flatout.ranks.sharded.passes import ShardedPasses
from flatout.ranks.sharded.resting import as_it_is
from flatout.ranks.sharded.shard import Shard
from flatout.ranks.sharded.values import SharedValues

__all__ = ["OptimizerShares"]

_BY_ELEMENTS = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
_STATE = "the script reads the state of an optimizer, of which each rank has a share: ask for its state_dict()"


class _ShareState(defaultdict[Any, Any]):
    """The state of an optimizer, by the shares that it steps; only the optimizer itself may read it."""

    def __init__(self, found: Any, stop: Callable[[str], NoReturn]) -> None:
        super().__init__(dict, found)
        self.stop, self.open = stop, False

    def _asked(self) -> None:
        if not self.open and len(self):
            self.stop(_STATE)

    def _asked_for(self, key: Any) -> None:
        if not dict.__contains__(self, key):
            self._asked()

    def __contains__(self, key: Any) -> bool:
        self._asked_for(key)
        return super().__contains__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key."""
        self._asked_for(key)
        return super().get(key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        """Take out the value of a key."""
        self._asked_for(key)
        return super().pop(key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, which it has from now on."""
        self._asked_for(key)
        return super().setdefault(key, default)

    def __missing__(self, key: Any) -> Any:
        self._asked()
        return super().__missing__(key)

    def __iter__(self) -> Iterator[Any]:
        self._asked()
        return super().__iter__()

    def items(self) -> Any:
        """Return keys and values."""
        self._asked()
        return super().items()

    def values(self) -> Any:
        """Return the values."""
        self._asked()
        return super().values()

    def keys(self) -> Any:
        """Return the keys."""
        self._asked()
        return super().keys()

    def __reduce__(self) -> Any:
        self._asked()
        return dict, (dict(self),)

    def __deepcopy__(self, memo: Any) -> Any:
        self._asked()
        return defaultdict(dict)


class OptimizerShares:
    """The seams at optimizers."""

    def __init__(
        self, values: SharedValues, passes: ShardedPasses, memory: MemoryAccount, stop: Callable[[str], NoReturn]
    ) -> None:
        """Take what is shared out, and what ends the training."""
        self._values, self._passes, self._memory, self._stop = values, passes, memory, stop
        self._classes = tuple(getattr(torch.optim, name) for name in _BY_ELEMENTS if hasattr(torch.optim, name))

    def install(self, seams: Seams, fits: Callable[[], bool]) -> None:
        """Take what optimizers do; parameters are shared out for those whose step goes by elements, where it `fits`."""
        seams.wrap("torch.optim.optimizer:Optimizer.add_param_group", self._adopting(fits))
        seams.wrap("torch.optim.optimizer:Optimizer.state_dict", self._state_dict)
        seams.wrap("torch.optim.optimizer:Optimizer.load_state_dict", self._load_state_dict)
        seams.wrap("torch.optim.optimizer:Optimizer.zero_grad", self._zero_grad)
        seams.wrap("torch.nn.modules.module:Module.zero_grad", self._zero_grad)
        for kind in self._classes:
            seams.wrap(f"{kind.__module__}:{kind.__name__}.step", self._step)

    def _adopting(self, fits: Callable[[], bool]) -> Any:
        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def add_param_group(optimizer: Any, group: Any) -> None:
                original(optimizer, group)
                if not fits():
                    return
                name = type(optimizer).__name__
                if type(optimizer) not in self._classes or optimizer.defaults.get("differentiable"):
                    self._memory.left(f"{name} does not step each value by itself")
                    return
                hits.count += 1
                self._values.adopt(optimizer.param_groups[-1]["params"])

            return add_param_group

        return make

    # -- a step -------------------------------------------------------------------------------------------------

    def _step(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def step(optimizer: Any, closure: Any = None) -> Any:
            shards = self._of(optimizer)
            if not shards:
                return original(optimizer, closure)
            hits.count += 1
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            whole = [one for one in shards if self._settled(one)]
            with self._shares(optimizer):
                original(optimizer)
            for one in whole:
                one.part.grad = None
            self._refresh(shards)
            self._memory.look(optimizer, shards)
            return loss

        return step

    def _settled(self, shard: Shard) -> bool:
        """Take value and gradient from the whole where that is there; return whether the gradient was."""
        shard.settle()
        whole = shard.grad
        if whole is not None:
            shard.part.grad = shard.share(whole.detach())
        return whole is not None

    def _refresh(self, shards: list[Shard]) -> None:
        """Bring what is whole up to date, wherever anything holds its memory."""
        with as_it_is():
            for one in shards:
                torch.autograd.graph.increment_version(one.parameter)
        there = torch.tensor([one.whole for one in shards], dtype=torch.uint8)
        self._values.group.meet(Together.VALUES, len(shards), always=True)
        anywhere = self._values.group.everywhere(there).amax(0).tolist()
        held = [one for one, shared in zip(shards, anywhere, strict=True) if shared]
        for one in held:
            one.fresh = False
        self._values.together(held, settled=True)
        self._values.release(held)

    def _of(self, optimizer: Any) -> list[Shard]:
        found = (self._values.live.of(one) for group in optimizer.param_groups for one in group["params"])
        return [one for one in found if one is not None]

    @contextlib.contextmanager
    def _shares(self, optimizer: Any) -> Iterator[None]:
        """Let an optimizer see its shares in place of parameters."""
        groups = optimizer.param_groups
        before = [group["params"] for group in groups]
        if not isinstance(optimizer.state, _ShareState):
            optimizer.state = _ShareState(optimizer.state, self._stop)
        for group, params in zip(groups, before, strict=True):
            group["params"] = [one if (found := self._values.live.of(one)) is None else found.part for one in params]
        optimizer.state.open = True
        self._move_state(optimizer, before)
        try:
            yield
        finally:
            for group, params in zip(optimizer.param_groups, before, strict=True):  # a state dict brings new groups
                group["params"] = params
            if isinstance(optimizer.state, _ShareState):
                optimizer.state.open = False
            else:  # a state dict was loaded
                optimizer.state = _ShareState(optimizer.state, self._stop)

    def _move_state(self, optimizer: Any, groups: list[list[Any]]) -> None:
        """Take shares of state that was made with the optimizer."""
        for one in [one for params in groups for one in params]:
            shard = self._values.live.of(one)
            if shard is not None and one in optimizer.state:
                state = optimizer.state.pop(one)
                optimizer.state[shard.part] = {name: _share(shard, value) for name, value in state.items()}

    # -- state dicts --------------------------------------------------------------------------------------------

    def _state_dict(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def state_dict(optimizer: Any) -> Any:
            if not self._of(optimizer):
                return original(optimizer)
            with self._shares(optimizer):
                found = original(optimizer)
            params = [one for group in optimizer.param_groups for one in group["params"]]
            numbers = [number for group in found["param_groups"] for number in group["params"]]
            for number, one in zip(numbers, params, strict=True):
                shard, state = self._values.live.of(one), found["state"].get(number)
                if shard is not None and state is not None:
                    found["state"][number] = {name: self._whole(shard, value) for name, value in state.items()}
            return found

        return state_dict

    def _whole(self, shard: Shard, value: Any) -> Any:
        """Return what one process has in the place of this rank's share."""
        if not isinstance(value, torch.Tensor) or value.shape != shard.part.shape:
            return value
        self._values.group.meet(Together.VALUES, shard.numel, always=True)
        (flat,) = self._values.wholes([shard], [value])
        return shard.shaped(flat).cpu()

    def _load_state_dict(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def load_state_dict(optimizer: Any, state_dict: Any) -> None:
            if not self._of(optimizer):
                original(optimizer, state_dict)
                return
            params = [one for group in optimizer.param_groups for one in group["params"]]
            numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
            state = dict(state_dict["state"])
            for number, one in zip(numbers, params, strict=False):
                shard = self._values.live.of(one)
                if shard is not None and number in state:
                    state[number] = {name: _share(shard, value) for name, value in state[number].items()}
            with self._shares(optimizer):
                original(optimizer, {**state_dict, "state": state})

        return load_state_dict

    # -- gradients ----------------------------------------------------------------------------------------------

    def _zero_grad(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def zero_grad(owner: Any, set_to_none: bool = True) -> None:
            params = owner.parameters() if isinstance(owner, torch.nn.Module) else None
            shards = self._of(owner) if params is None else [one for one in map(self._values.live.of, params) if one]
            for one in shards:
                if one.part.grad is not None and one.grad is None:
                    one.part.grad = None if set_to_none else one.part.grad.zero_()
            self._passes.quiet = True
            try:
                original(owner, set_to_none)
            finally:
                self._passes.quiet = False

        return zero_grad


def _share(shard: Shard, value: Any) -> Any:
    """Return this rank's share of what one process has."""
    if isinstance(value, torch.Tensor) and tuple(value.shape) == shard.shape:
        return shard.share(value)
    return value
