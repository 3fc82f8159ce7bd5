"""What becomes of gradients: read by an optimizer or the script, or thrown away before anybody has.

While it watches, reading `tensor.grad` in Python is seen; torch's own optimizers, `zero_grad` and we do not count. What
an optimizer reads is told by its step, and of one that is not torch's it is seen in the parameter: it was written to
(fused optimizers write without counting it).
"""

import sys
from collections import Counter, defaultdict
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from flatout.probe.backward.recorded_pass import Leaf, PassKey, RecordedPass
from flatout.probe.core.seams import Seams

__all__ = ["LeafUse"]

_NO_READERS = ("torch.optim.", "flatout.")
_GRAD: Any = torch.Tensor.grad


class LeafUse:
    """Follows gradients from the pass that makes them to who reads them."""

    def __init__(self, unread: set[int]) -> None:
        """Follow none yet; `unread` takes the identities of parameters whose gradients nobody reads in Python."""
        self._unread = unread
        self._was_read: set[int] = set()
        self._seams = Seams()
        self._watching = False
        self._pending: dict[int, tuple[Leaf, int, list[PassKey]]] = {}  # by the tensor's identity, with its version
        self._thrown: dict[PassKey, Counter[object]] = defaultdict(Counter)
        self._used: dict[PassKey, set[object]] = defaultdict(set)
        self._states: dict[int, tuple[int, ...]] = {}  # of gradients and weights after the latest pass
        self._step = 0  # of that pass
        self._read = False  # a gradient, since then

    def install(self) -> None:
        """Be told of steps of optimizers, for good: steps of a training may end while torch goes through such hooks."""
        register_optimizer_step_pre_hook(self._stepping)

    def begin(self) -> None:
        """Watch."""
        self._watching = True
        self._seams.replace(torch.Tensor, "grad", self._watched())

    def end(self) -> None:
        """Watch no more; what is left of inputs nobody has asked for."""
        if not self._watching:
            return
        self._watching = False
        self._seams.undo()
        for number in [number for number, (leaf, *_) in self._pending.items() if not leaf.is_parameter]:
            self._settle(number, used=False)
        self._pending.clear()
        self._unread -= self._was_read

    @property
    def waits(self) -> bool:
        """Return whether there are gradients of parameters that nobody has read or set to zero yet."""
        return any(leaf.is_parameter for leaf, *_ in self._pending.values())

    def look_for_lost(self) -> None:
        """Settle what was set to zero, or written to, since the latest pass."""
        for number, (leaf, version, _) in list(self._pending.items()):
            tensor = leaf.ref()
            if tensor is not None and tensor._version != version:
                self._settle(number, used=True)
            elif tensor is None or (leaf.is_parameter and _is_zero(_GRAD.__get__(tensor))):
                self._settle(number, used=False)

    def before_pass(self, recorded: RecordedPass) -> None:
        """A pass is about to begin: what was set to zero is lost, and what has changed is noted."""
        self.look_for_lost()
        if recorded.step != self._step:
            self._step = recorded.step
            self._states.clear()
        states = _states(recorded)
        known = [number for number in states if number in self._states]
        recorded.changed = self._read or not self._states or any(states[one] != self._states[one] for one in known)

    def after_pass(self, recorded: RecordedPass) -> None:
        """It is over: its gradients wait for a reader."""
        self._states |= _states(recorded)
        self._read = False
        for node in recorded.nodes if recorded.adds else ():
            leaf, tensor = node.leaf, node.leaf.ref() if node.leaf is not None and node.ran else None
            if leaf is not None and tensor is not None and not (leaf.is_parameter and _is_zero(_GRAD.__get__(tensor))):
                self._pending.setdefault(id(tensor), (leaf, tensor._version, []))[2].append(recorded.key)
                self._unread |= {id(tensor)} if leaf.is_parameter else set()

    def needless(self, recorded: RecordedPass, held: set[int]) -> set[object]:
        """Return the identities of the leaves whose gradients of such a pass were thrown away each time.

        Parameters that no optimizer holds are another matter.
        """
        thrown, used = self._thrown[recorded.key], self._used[recorded.key]
        found = (leaf for leaf in recorded.leaves() if thrown[leaf.identity] and leaf.identity not in used)
        return {leaf.identity for leaf in found if not leaf.is_parameter or leaf.identity in held}

    def _stepping(self, optimizer: Any, *_: Any) -> None:
        """An optimizer is about to read the gradients of what it holds, and to write to that."""
        if not self._watching:
            return
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                self._read = self._read or id(tensor) in self._states
                leaf, *_rest = self._pending.get(id(tensor), (None,))
                if leaf is not None and leaf.ref() is tensor:
                    self._settle(id(tensor), used=not _is_zero(_GRAD.__get__(tensor)))

    def _settle(self, number: int, *, used: bool) -> None:
        leaf, _, keys = self._pending.pop(number)
        for key in keys:
            if used:
                self._used[key].add(leaf.identity)
            else:
                self._thrown[key][leaf.identity] += 1

    def _watched(self) -> property:
        def read(tensor: Any) -> Any:
            if id(tensor) in self._unread or id(tensor) in self._pending:
                reader = sys._getframe(1)
                name = str(reader.f_globals.get("__name__", ""))
                if not name.startswith(_NO_READERS) and reader.f_code.co_name != "zero_grad":
                    self._was_read.add(id(tensor))
                    if id(tensor) in self._pending:
                        self._read = True
                        self._settle(id(tensor), used=True)
            return _GRAD.__get__(tensor)

        return property(read, _GRAD.__set__, _GRAD.__delete__)


def _is_zero(gradient: Any) -> bool:
    return gradient is None or (gradient.layout is torch.strided and not bool(gradient.any()))


def _states(recorded: RecordedPass) -> dict[int, tuple[int, ...]]:
    """Return of each parameter what changes when its gradient or its value is written to, or replaced."""
    found: dict[int, tuple[int, ...]] = {}
    for leaf in recorded.leaves():
        tensor = leaf.ref()
        if leaf.is_parameter and tensor is not None:
            gradient = _GRAD.__get__(tensor)
            found[id(tensor)] = tensor._version, id(gradient), -1 if gradient is None else gradient._version
    return found
