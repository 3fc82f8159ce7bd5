"""`torch.autograd.grad` as the backward pass of scripts written in functions: no optimizer, no `backward()`."""

from collections.abc import Callable
from typing import Any

from flatout.probe.core.seams import Hits
from flatout.probe.core.step_tracker import StepTracker

__all__ = ["instead"]

Make = Callable[[Callable[..., Any], Hits], Callable[..., Any]]


def instead(make: Make, tracker: StepTracker, backwards: Callable[[], Hits]) -> Make:
    """Return what wraps `torch.autograd.grad` as `make` wraps `backward`, whose calls `backwards()` counts.

    Where the script has an optimizer, or calls `backward()`, gradients are asked for on the way there, of a penalty for
    instance, and are no step.
    """

    def wrap(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        backward = make(original, hits)

        def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            otherwise = tracker.optimizers.number or backwards().count
            return (original if otherwise else backward)(outputs, *args, **kwargs)

        return grad

    return wrap
