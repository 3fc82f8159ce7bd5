"""The state at a forward pass: what it takes to repeat the pass with the same numbers."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["ForwardState"]

_DEVICES = ("cpu", "cuda")


class ForwardState:
    """Inputs, buffers, random states and autocast of one call of a graph.

    `places` are those of the inputs that the call may write to: their values are copied.
    """

    def __init__(self, args: tuple[Any, ...], places: Sequence[int], *, draws: bool) -> None:
        """Take down what is now; the inputs themselves are held, not copied."""
        import torch

        self.args = args
        self.places = tuple(places)
        self._values = {place: args[place].detach().clone() for place in places}
        self._versions: list[int] = []
        self._devices = sorted({arg.device.index for arg in args if getattr(arg, "is_cuda", False)})
        self._random = _random_states(self._devices) if draws else None
        self._autocast = [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in _DEVICES]

    def watch(self) -> None:
        """Have `written` and `overwritten` tell what is written to the inputs from now on."""
        self._versions = _versions(self.args)

    def written(self) -> tuple[int, ...]:
        """Return the places of the inputs that were written to since."""
        now = _versions(self.args)
        return tuple(place for place in self.places if now[place] != self._versions[place])

    def overwritten(self) -> set[int]:
        """Return the places of the inputs whose values are gone."""
        now = _versions(self.args)
        return {place for place in range(len(now)) if now[place] != self._versions[place]} - self._values.keys()

    def drew(self) -> bool:
        """Return whether random numbers were drawn since."""
        import torch

        now = _random_states(self._devices)
        return any(not torch.equal(one, other) for one, other in zip(self._random or [], now, strict=True))

    @contextlib.contextmanager
    def again(self) -> Iterator[list[Any]]:
        """Give the inputs as they were, with the random states and the autocast of then; the present comes back."""
        import torch

        now = _random_states(self._devices)
        with contextlib.ExitStack() as stack:
            stack.callback(_put_back, now, self._devices)
            stack.enter_context(torch.enable_grad())
            for kind, dtype, on in self._autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=on, cache_enabled=False))
            if self._random is not None:
                _put_back(self._random, self._devices)
            yield [self._values[place].clone() if place in self._values else arg for place, arg in enumerate(self.args)]


def _versions(args: tuple[Any, ...]) -> list[int]:
    try:
        return [getattr(arg, "_version", 0) for arg in args]
    except RuntimeError:  # made in inference mode: nothing counts what is written there
        return [0] * len(args)


def _random_states(devices: Sequence[int]) -> list[Any]:
    import torch

    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def _put_back(states: Sequence[Any], devices: Sequence[int]) -> None:
    import torch

    torch.set_rng_state(states[0])
    for device, state in zip(devices, states[1:], strict=True):
        torch.cuda.set_rng_state(state, device)
