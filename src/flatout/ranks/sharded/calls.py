"""Calls of modules with sharded parameters: put together block by block, and let go when the call of a block ends."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.local_rows import HERE
from flatout.ranks.sharded.blocks import blocks_of
from flatout.ranks.sharded.shard import Shard
from flatout.ranks.sharded.values import SharedValues

__all__ = ["ShardedCalls"]


@dataclass(slots=True)
class _Plan:
    """How calls of one module are made."""

    ref: weakref.ref[Any]
    number: int  # of parameters that were shared out when this was made
    rest: list[Shard]
    blocks: dict[int, tuple[Any, tuple[Shard, ...]]]


class _Look:
    """Which blocks are called in a trial of the whole batch, and whether each is with all rows."""

    def __init__(self, rows: set[int]) -> None:
        self._rows = rows
        self._seen: dict[int, bool] = {}

    def see(self, module: Any, args: Any, kwargs: Any) -> None:
        """Take down a call of a block."""
        found = _rows((args, kwargs))
        alike = any(one % of == 0 for one in found for of in self._rows)
        self._seen[id(module)] = self._seen.get(id(module), True) and alike

    def alike(self, module: Any) -> bool:
        """Return whether all ranks call it, as far as that was seen."""
        return self._seen.get(id(module), False)


def _rows(values: Any) -> set[int]:
    """Return what may be the number of rows in arguments: the sizes of batches and, of sequences, of their lengths."""
    found = set()
    for one in tree_leaves(values):
        if isinstance(one, torch.Tensor) and one.dim() and one.numel():
            found |= {one.shape[0], *(one.shape[1:2] if one.dim() > 2 else ())}
    return found


def _is_foreign() -> bool:
    return get_ident() != HERE.main and not HERE.backward


class ShardedCalls:
    """The seam at `Module.__call__`, inside of the one that cuts calls by rows."""

    def __init__(self, values: SharedValues, need: Callable[[Shard], None]) -> None:
        """Take the values, and what puts one together in a backward pass."""
        self._values = values
        self._need = need
        self._plans: dict[int, _Plan] = {}
        self._running: _Plan | None = None
        self._look: _Look | None = None
        self._loose: dict[int, tuple[weakref.ref[Any], set[str]]] = {}
        self._origins: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}

    def install(self, seams: Seams) -> None:
        """Take every call that is a part of one that is cut or left whole, or is it."""

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def call(module: Any, *args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling() or not HERE.inside or _is_foreign():
                    return original(module, *args, **kwargs)
                plan = self._running
                if plan is None:
                    return self._whole(original, module, args, kwargs)
                block = plan.blocks.get(id(module))
                if block is None:
                    return original(module, *args, **kwargs)
                return self._block(block[1], original, module, args, kwargs)

            return call

        seams.wrap("torch.nn.modules.module:Module.__call__", make)

    # -- one call -----------------------------------------------------------------------------------------------

    def _whole(self, original: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """Make a call that is no part of another one."""
        plan = self.plan_of(module)
        if not plan.rest and not plan.blocks:
            return original(module, *args, **kwargs)
        self._running = plan
        if self._values.group.tried and HERE.whole:
            self._look = _Look(_rows((args, kwargs)))
        try:
            with self._in_use(plan.rest), self._values.notes.taken():
                result = original(module, *args, **kwargs)
            if self._look is not None:
                self._learn(module, plan, self._look)
            return result
        finally:
            self._running = self._look = None
            self._values.let_go()
            if not HERE.backward:
                self._values.notes.clear()

    def _block(self, shards: Sequence[Shard], original: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        if self._look is not None:
            self._look.see(module, args, kwargs)
        if HERE.backward:  # computed again: what follows of this pass needs it soon
            for one in shards[:1]:
                self._need(one)
        with self._in_use(shards):
            return original(module, *args, **kwargs)

    @contextlib.contextmanager
    def _in_use(self, shards: Sequence[Shard]) -> Iterator[None]:
        """Have these parameters whole, and ordinary ones."""
        self._values.together(shards)
        for one in shards:
            one.users += 1
            one.show(True)
        try:
            yield
        finally:
            for one in shards:
                one.users -= 1
                one.show(one.users > 0)
            if not HERE.backward:
                self._values.release(shards)

    # -- which calls all ranks make -----------------------------------------------------------------------------

    def tried(self, module: Any, copied: Any) -> None:
        """Take note that `copied` is a copy of `module` on which a call is tried."""
        self._origins = {key: one for key, one in self._origins.items() if one[0]() is not None}
        self._origins[id(copied)] = weakref.ref(copied), weakref.ref(module)

    def _learn(self, module: Any, plan: _Plan, look: "_Look") -> None:
        """Take blocks apart that a rank may not call: what they get is no multiple of the rows, or nothing."""
        found = {name for name, one in module.named_modules() if id(one) in plan.blocks and not look.alike(one)}
        if found - self._loose_in(module):
            origin = self._origin(module)
            self._loose[id(origin)] = weakref.ref(origin), self._loose_in(module) | found
            self._plans.clear()

    def _origin(self, module: Any) -> Any:
        copied, origin = self._origins.get(id(module), (None, None))
        found = origin() if copied is not None and origin is not None and copied() is module else None
        return module if found is None else found

    def _loose_in(self, module: Any) -> set[str]:
        origin = self._origin(module)
        of, found = self._loose.get(id(origin), (None, set[str]()))
        return found if of is not None and of() is origin else set()

    # -- blocks -------------------------------------------------------------------------------------------------

    def plan_of(self, module: Any) -> _Plan:
        """Return how calls of `module` are made."""
        number = self._values.live.made
        if any(one.ref() is None for one in self._plans.values()):  # copies that calls were tried on
            self._plans = {key: one for key, one in self._plans.items() if one.ref() is not None}
        plan = self._plans.get(id(module))
        if plan is None or plan.ref() is not module or plan.number != number:
            plan = self._plans[id(module)] = self._planned(module, number)
        return plan

    def _planned(self, module: Any, number: int) -> _Plan:
        held, names = self._shards(module), self._loose_in(module)
        loose = {id(one) for name, one in module.named_modules() if name in names}
        found = blocks_of(module, lambda part: sum(each.numel for each in self._shards(part)))
        blocks = {id(one): (one, tuple(self._shards(one))) for one in found if id(one) not in loose}
        inside = {id(each) for _, shards in blocks.values() for each in shards}
        for _, shards in blocks.values():
            for each in shards:
                each.block = shards
        rest = [each for each in held if id(each) not in inside]
        for each in rest:
            each.block = (each,)
        return _Plan(weakref.ref(module), number, rest, blocks)

    def _shards(self, module: Any) -> list[Shard]:
        found = map(self._values.live.of, module.parameters())
        return [one for one in found if one is not None]
