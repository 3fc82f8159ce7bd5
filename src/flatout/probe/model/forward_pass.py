"""One forward pass of a module, seen operation by operation through a dispatch mode."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from flatout.probe.core.event_log import EventLog

__all__ = ["plain_on_cpu", "within"]


def plain_on_cpu(module: Any, event_log: EventLog) -> bool:
    """Return whether the operations of `module` run one by one, and are done when their calls return."""
    return not event_log.tracing.possible and all(one.device.type == "cpu" for one in module.parameters())


def within(mode: TorchDispatchMode, inner: Callable[..., Any]) -> Callable[..., Any]:
    """Return `inner`, called under `mode`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return inner(*args, **kwargs)

    return call
