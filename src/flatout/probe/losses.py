"""The losses of a Run: taken from `backward()`, kept where they are, read once at the end."""

from typing import Any

import torch

__all__ = ["Losses"]

_LIMIT = 20_000


class Losses:
    """Scalars that `backward()` was called on, in order, without a wait for the device in the step."""

    def __init__(self) -> None:
        """Hold none yet."""
        self._kept: list[torch.Tensor | float] = []

    def take(self, tensor: Any) -> None:
        """Keep the value of `tensor` when it is a scalar that a backward pass began from."""
        if isinstance(tensor, torch.Tensor) and tensor.numel() == 1 and len(self._kept) < _LIMIT:
            # on the CPU reading is no wait, and a float is lighter to keep than a tensor
            self._kept.append(tensor.item() if tensor.is_cpu else tensor.detach())

    def values(self) -> list[float]:
        """Return the values as Python floats, exactly; waits for the device, so call it after the last step."""
        values = []
        for tensor in self._kept:
            try:
                values.append(float(tensor))
            except (RuntimeError, TypeError, ValueError):
                values.append(float("nan"))
        return values
