"""A captured step in float64: the gradients that all arithmetic in fewer bits is an approximation of.

Parameters, buffers, batches and what modules are called with become double precision for the one step, and what they
were right before the optimizer acts. A script that cannot be run so (it names float32 itself, its operations know no
float64) ends with an error, and there is no reference; nothing else depends on this execution.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from flatout.probe.verify.capture import Capture, capture_path, copy_of, deviations, write_capture
from flatout.probe.verify.replay import Replay, gradients
from flatout.schema.order import VerifyOrder

__all__ = ["Reference"]


class Reference(Replay):
    """Replays captured steps in float64 and writes their gradients."""

    def __init__(self, order: VerifyOrder, rank: int, write: Callable[[str, Mapping[str, object]], None]) -> None:
        """Convert nothing yet."""
        super().__init__(order, rank, write)
        self.active = False
        self._doubled: list[tuple[torch.Tensor, torch.Tensor]] = []  # tensors of the script, and their data before
        self._default = torch.get_default_dtype()

    def begin(self, step: int, capture: Capture) -> bool:
        """Put the captured state of `step` back and turn it into double precision."""
        if not super().begin(step, capture):
            return False
        floats = [one for one in (capture.parameters | capture.rest).values() if one.is_floating_point()]
        self._doubled = [(one, one.data) for one in floats]
        for one in floats:
            one.grad = None
            one.data = one.data.double()
        torch.set_default_dtype(torch.float64)
        self.active = True
        return True

    def before_step(self, step: int, capture: Capture, optimizer: int, events: Mapping[str, list[Any]]) -> None:
        """Write the gradients, how far the baseline is off them, and turn everything back."""
        if not self.active:
            return
        body = self._body
        assert body is not None
        found = copy_of(gradients(capture.of(optimizer)))
        write_capture(capture_path(self._order.references, self._rank, step), {"grads": found})
        record = {"step": step, "gradients": deviations(body["grads"], found, body["names"])}
        self._write("reference", {**record, "double": all(one.dtype is torch.float64 for one in found.values())})
        self._turn_back()

    def after_step(self, step: int, capture: Capture, optimizer: int) -> None:
        """Nothing is compared after the step."""

    def _turn_back(self) -> None:
        self.active, self._body = False, None
        torch.set_default_dtype(self._default)
        for one, before in self._doubled:
            gradient, one.grad = one.grad, None
            one.data = before if one.requires_grad else one.data.to(before.dtype)  # buffers have moved on
            if gradient is not None:
                one.grad = gradient.to(before.dtype)

    def doubled(self, batch: Any) -> Any:
        """Return a batch with its floating tensors in double precision, while a step runs so."""
        return _cast(batch, torch.float64) if self.active else batch

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Call a module with arguments as precise as its weights: a state carried over comes from another step."""
        if not self._doubled:
            return inner
        kind = torch.float64 if self.active else self._default
        return lambda *args, **kwargs: inner(*_cast(args, kind), **_cast(kwargs, kind))


def _cast(value: Any, kind: torch.dtype) -> Any:
    """Return a nest of containers with its tensors of float32 and float64 in `kind`."""
    if isinstance(value, torch.Tensor):
        return value.to(kind) if value.dtype in (torch.float32, torch.float64) else value
    if isinstance(value, dict):
        return {key: _cast(item, kind) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cast(item, kind) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, kind) for item in value)
    if isinstance(getattr(value, "data", None), dict):  # transformers.BatchEncoding
        for key, item in value.data.items():
            value.data[key] = _cast(item, kind)
    return value
