"""The losses of a Run: taken from `backward()`, kept where they are, read once at the end."""

import torch

__all__ = ["LIMIT", "Losses"]

LIMIT = 20_000
"""Losses that are kept, the first ones."""


class Losses:
    """Scalars that `backward()` was called on, in order, without a wait for the device in the step.

    The seam around `backward()` itself appends to `kept`: a call of a function here would cost as much as the rest.
    """

    def __init__(self) -> None:
        """Hold none yet."""
        self.kept: list[torch.Tensor | float] = []

    def values(self) -> list[float]:
        """Return the values as Python floats, exactly; waits for the device, so call it after the last step."""
        values = []
        for tensor in self.kept:
            try:
                values.append(float(tensor))
            except (RuntimeError, TypeError, ValueError):
                values.append(float("nan"))
        return values
