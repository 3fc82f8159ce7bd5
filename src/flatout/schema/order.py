"""The order: what the parent asks the probes of one script execution to do."""

from dataclasses import dataclass

__all__ = ["ORDER_VARIABLE", "Order"]

ORDER_VARIABLE = "FLATOUT_ORDER"
"""The environment variable that names the order file; processes without it are left alone."""


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
