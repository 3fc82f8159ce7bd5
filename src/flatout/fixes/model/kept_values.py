"""Change in place the tensors that a model keeps for itself or returns, whatever holds them.

The modules of a script's own classes are searched after a forward pass: their attributes and buffers, with what
lists, dictionaries and plain objects hold. Modules of `torch.nn` keep no tensors of a pass.
"""

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flatout.fixes.model.nested_tensors import map_tensors

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["Survey", "Surveys", "change_in_place"]

_MOST_ITEMS = 256  # of a container that is kept: a history that grows with the training is none of a pass
_AGAIN = 64  # calls after which a survey is made anew in any case: parts can be written past any registration
_PLAIN = (int, float, bool, str, bytes, type(None))

Change = Callable[[Any], Any]


class Survey:
    """The modules below one as they stand: where they may keep tensors, and whether the script's own hooks see them.

    One takes 0.25 ms for 160 modules: keep it for as long as no module and no hook is added (`Surveys`).
    """

    def __init__(self, module: Any) -> None:
        """Go through all modules below `module`."""
        self.hooked = ""  # the class of a module whose calls the script's own hooks see
        self._kept: list[dict[str, Any]] = []
        waiting: list[Any] = [module]
        seen: set[int] = set()
        while waiting:
            module = waiting.pop()
            inner = module.__dict__
            if inner["_modules"]:
                waiting += [
                    child for child in inner["_modules"].values() if child is not None and id(child) not in seen
                ]
                seen.update(map(id, inner["_modules"].values()))
            if not type(module).__module__.startswith("torch.nn."):  # torch's own write to buffers, and keep no more
                self._kept += [inner, inner["_buffers"]]
            if (inner["_forward_hooks"] or inner["_forward_pre_hooks"]) and _foreign(inner):
                self.hooked = type(module).__name__

    def change_kept(self, change: Change) -> None:
        """Have the modules keep `change(tensor)` in place of each tensor that they keep; not of weights."""
        own, within = _own_names(), _Within(change, _MOST_ITEMS)
        for inner in self._kept:
            names = [name for name, value in inner.items() if name not in own and not isinstance(value, _PLAIN)]
            if names:
                within.items(inner, names)


class Surveys:
    """The latest survey of each outermost module, made anew after any module of the process got a part or a hook."""

    def __init__(self, site: "Site") -> None:
        """Follow registrations while the fix of `site` is on."""
        self._known: weakref.WeakKeyDictionary[Any, tuple[int, Survey]] = weakref.WeakKeyDictionary()
        self._changes = self._calls = 0
        self._handle: Any = None
        site.switch(self._follow, self._leave)
        for name in ("register_forward_hook", "register_forward_pre_hook"):
            site.wrap(f"torch.nn.modules.module:Module.{name}", self._registering)

    def of(self, module: Any) -> Survey:
        """Return the survey of `module`."""
        self._calls += 1
        stamp, found = self._known.get(module, (-1, None))
        if found is None or stamp != self._changes or self._calls % _AGAIN == 0:
            found = Survey(module)
            self._known[module] = (self._changes, found)
        return found

    def _follow(self) -> None:
        from torch.nn.modules.module import register_module_module_registration_hook

        self._changes += 1
        self._handle = register_module_module_registration_hook(self._registered)

    def _leave(self) -> None:
        if self._handle is not None:
            self._handle.remove()

    def _registered(self, module: Any, name: Any, part: Any) -> None:
        self._changes += 1

    def _registering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def register(*args: Any, **kwargs: Any) -> Any:
            self._changes += 1
            return original(*args, **kwargs)

        return register


def _foreign(inner: dict[str, Any]) -> bool:
    """Return whether a module has hooks of the script: those of torch (weight and spectral norm) see no outputs."""
    hooks = (*inner["_forward_hooks"].values(), *inner["_forward_pre_hooks"].values())
    homes = ((getattr(hook, "__module__", None) or type(hook).__module__) for hook in hooks)
    return any(not home.startswith("torch.") for home in homes)


def change_in_place(value: Any, change: Change) -> Any:
    """Return `value` with `change(tensor)` for each tensor: lists, dictionaries and objects stay the same ones.

    What cannot be changed where it lies, a tuple or an object with slots, is made anew as in `map_tensors`.
    """
    return _Within(change).changed(value)


class _Within:
    """One walk through what holds tensors; each object once, containers of at most `most` items."""

    def __init__(self, change: Change, most: float = float("inf")) -> None:
        self._change = change
        self._most = most
        self._seen: set[int] = set()
        self._tensor = _tensor()

    def changed(self, value: Any) -> Any:
        if isinstance(value, self._tensor):
            return self._change(value)
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, list):
            self._container(value, range(len(value)))
        elif isinstance(value, dict):
            self._container(value, list(value))
        elif _is_plain_object(value):
            self._container(vars(value), list(vars(value)))
        else:
            return map_tensors(value, self._change)
        return value

    def _container(self, value: Any, keys: Iterable[Any]) -> None:
        if id(value) not in self._seen and len(value) <= self._most:
            self._seen.add(id(value))
            self.items(value, keys)

    def items(self, value: Any, keys: Iterable[Any]) -> None:
        for key in keys:
            old = value[key]
            new = self.changed(old)
            if new is not old:
                value[key] = new


@functools.cache
def _tensor() -> type:
    import torch

    return torch.Tensor


@functools.cache
def _own_names() -> frozenset[str]:
    """Return the attributes that every module has."""
    import torch

    return frozenset(vars(torch.nn.Module()))


def _is_plain_object(value: Any) -> bool:
    """Return whether `value` is an object that holds its attributes as they were set; no module, no part of torch."""
    inner = getattr(value, "__dict__", None)
    if not isinstance(inner, dict) or isinstance(value, type) or "_parameters" in inner or callable(value):
        return False
    home = type(value).__module__
    return home.partition(".")[0] not in ("builtins", "torch") or home.startswith("torch.distributions.")
