"""Copies from host to device that a deep run saw."""

from collections.abc import Iterable

from flatout.schema.run import Run, Transfer

__all__ = ["copies", "seconds"]


def copies(run: Run) -> tuple[Transfer, ...]:
    """Return the copies to the device, none when the device is not a CUDA device."""
    if run.causes is None or run.environment.device_kind != "cuda":
        return ()
    return tuple(transfer for transfer in run.causes.transfers if transfer.direction == "to_device")


def seconds(transfers: Iterable[Transfer]) -> float:
    """Return the host's seconds in all of `transfers` together."""
    return sum(max(0.0, transfer.seconds) for transfer in transfers)
