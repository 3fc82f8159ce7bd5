"""Parameters whose gradients nobody reads, frozen while nobody does.

The first backward passes run as they are: which parameters are read by no optimizer, and whether the script looks at
their gradients, hooks them, or asks activations whether they have any. Then they ask for no gradients any more.
To Python they still say that they do, so that copies, pickles and whoever counts what is trained get what they would.
Gradients that are missing cannot be made later. Whoever asks for one stops the training with a line that says so; who
clears them is served.
"""

import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from flatout.errors import ChangedTooLate

__all__ = ["FrozenGradients", "grad_descriptor", "requires_grad_descriptor"]

_CLEARING = ("zero_grad",)


class FrozenGradients:
    """The parameters that are frozen, and what a script finds out about them.

    Attributes:
        seen: why nothing is to be frozen, as far as that was seen; an empty string for nothing.
        watches: nothing is frozen yet, and what the script asks for is noted.
        parameters: those that are frozen, by identity: they ask for no gradients, and say that they do.
        missing: those that have not the gradients that they would have.
    """

    def __init__(self, failed: Callable[[str], None], on_change: str) -> None:
        """Freeze none yet; `failed(reason)` is told where a script needs what is missing."""
        self.seen = ""
        self._failed, self._on_change = failed, on_change
        self.watches = True
        self.parameters: dict[int, weakref.ref[Any]] = {}
        self.missing: dict[int, weakref.ref[Any]] = {}
        self._returned: list[weakref.ref[Any]] = []  # ask for gradients again, since the last backward pass
        self._read: set[int] = set()  # tensors whose gradients were read while all was as it is

    def freeze(self, parameters: list[Any]) -> str:
        """Freeze parameters; return why not, an empty string where they are."""
        self.watches = False
        if self.seen:
            return self.seen
        if any(id(one) in self._read for one in parameters):
            return "the script reads these gradients"
        if any(one._backward_hooks or getattr(one, "_post_accumulate_grad_hooks", None) for one in parameters):
            return "the script hooks these parameters"
        for one in parameters:
            one.requires_grad_(False)
        self.parameters = {id(one): weakref.ref(one) for one in parameters}
        self.missing = dict(self.parameters)
        return ""

    def release(self) -> None:
        """Have them ask for gradients again; those of passes that are over are missing until they are cleared."""
        frozen, self.parameters = self.parameters, {}
        self._returned = list(frozen.values())
        for ref in frozen.values():
            if (one := ref()) is not None:
                one.requires_grad_(True)

    def has(self, tensor: Any) -> bool:
        """Return whether a tensor is one that is frozen."""
        return _is_in(self.parameters, tensor)

    def needs(self, *tensors: Any) -> None:
        """The script asks for the gradients of some tensors."""
        if self.watches:
            self._read.update(map(id, tensors))
        elif any(_is_in(self.missing, one) for one in tensors):
            self.stop("a gradient was asked for that no optimizer reads")

    def cleared(self, tensor: Any) -> None:
        """The gradient of a tensor was set: it is what it would be, until the next backward pass."""
        if not self.has(tensor):
            self.missing.pop(id(tensor), None)

    def after_backward(self) -> None:
        """A backward pass is over: what asks for gradients again has some, unless its graph is older than that."""
        returned, self._returned = self._returned, []
        some = (one for ref in returned if (one := ref()) is not None and not _is_in(self.missing, one))
        if any(one.grad is None for one in some):
            self.stop("an optimizer got parameters between a forward pass and its backward pass")

    def asked(self, tensor: Any, value: bool) -> bool:
        """The script freezes a tensor itself, or lets it learn; return whether it stays as it is."""
        if not value and self.has(tensor):
            del self.parameters[id(tensor)]
        return self.has(tensor)

    def stop(self, what: str) -> None:
        """Say that the script needs what is missing.

        Raises:
            ChangedTooLate: the training is not to go on after that.
        """
        self.release()
        self.missing.clear()
        self._failed(what)
        error = ChangedTooLate(
            f"{what}, after flatout had frozen it.",
            "The gradients of the steps before are missing; losses and weights are as they would be up to here.",
            'Leave frozen-parameters out, or continue with on_change="warn".',
        )
        if self._on_change == "stop":
            raise error
        warnings.warn(str(error), RuntimeWarning, stacklevel=4)


def grad_descriptor(frozen: FrozenGradients, original: Any) -> property:
    """Return what stands for `Tensor.grad`."""

    def read(tensor: Any) -> Any:
        if (frozen.watches or id(tensor) in frozen.missing) and not _is_exempt():
            frozen.needs(tensor)
        return original.__get__(tensor)

    def write(tensor: Any, value: Any) -> None:
        original.__set__(tensor, value)
        frozen.cleared(tensor)

    return property(read, write, lambda tensor: original.__delete__(tensor), original.__doc__)


def requires_grad_descriptor(frozen: FrozenGradients, original: Any) -> property:
    """Return what stands for `Tensor.requires_grad`."""
    from flatout.probe.core.user_places import is_user_file

    def read(tensor: Any) -> Any:
        found = original.__get__(tensor)
        asked = frozen.watches and found and tensor.grad_fn is not None
        if asked and is_user_file(sys._getframe(1).f_code.co_filename):
            frozen.seen = frozen.seen or "the script asks activations whether they have gradients"
        return found or frozen.has(tensor)

    def write(tensor: Any, value: bool) -> None:
        if not frozen.asked(tensor, value):
            original.__set__(tensor, value)

    return property(read, write, None, original.__doc__)


def _is_in(known: dict[int, "weakref.ref[Any]"], tensor: Any) -> bool:
    ref = known.get(id(tensor))
    return ref is not None and ref() is tensor


def _is_exempt() -> bool:
    """Return whether gradients are read by what sets them to None or zero, or by ourselves."""
    from flatout.probe.core.user_places import is_user_file

    frame = sys._getframe(2)
    clears = frame.f_code.co_name in _CLEARING and not is_user_file(frame.f_code.co_filename)
    return clears or str(frame.f_globals.get("__name__", "")).startswith("flatout.")
