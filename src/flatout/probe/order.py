"""The order file: what the parent asks the probes of one script execution to do."""

import json
from dataclasses import dataclass
from pathlib import Path

from flatout.schema.plain import from_plain, to_plain

__all__ = ["ORDER_VARIABLE", "Order", "read_order", "write_order"]

ORDER_VARIABLE = "FLATOUT_ORDER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One execution of the script under observation.

    `steps` ends the recording after that many steps past the first; without it, the recording ends when it is sound:
    see `flatout.probe.recorder.enough`. `max_s` bounds the time since the first step.
    """

    mode: str  # "timed" or "deep"
    folder: str  # the run's folder; parts are written below it
    script: str  # as shown to people
    steps: int | None = None
    max_s: float = 60.0
    launched_unix_s: float = 0.0
    protect_files: bool = True
    all_devices: bool = False  # install the seams of transfers and syncs even when there is no accelerator


def write_order(order: Order, path: Path) -> None:
    """Write an order where `ORDER_VARIABLE` will point."""
    path.write_text(json.dumps(to_plain(order)), encoding="utf-8")


def read_order(path: Path) -> Order:
    """Return the order in `path`.

    Raises:
        ValueError: when it is not an order.
    """
    order = from_plain(Order, json.loads(path.read_text(encoding="utf-8")))
    assert isinstance(order, Order)
    return order
