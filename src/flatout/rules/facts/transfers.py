"""Host-to-device copies that a deep run saw, and what they cost."""

from collections.abc import Iterable

from flatout.rules.facts.launches import launches
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Run, Transfer

__all__ = ["copies", "is_repeated", "lost", "seconds"]

MIN_REPEATED = 0.9
MIN_PER_STEP = 0.9
MIN_COPIES = 10


def copies(run: Run) -> tuple[Transfer, ...]:
    """Return the copies to the device; none when it is not a CUDA device."""
    if run.causes is None or run.environment.device_kind != "cuda":
        return ()
    return tuple(transfer for transfer in run.causes.transfers if transfer.direction == "to_device")


def seconds(transfers: Iterable[Transfer]) -> float:
    """Return the host's seconds in all `transfers` together."""
    return sum(max(0.0, transfer.seconds) for transfer in transfers)


def is_repeated(copy: Transfer, steps: int) -> bool:
    """Return whether a place copies an unchanged tensor in nearly each of the `steps` of the deep run."""
    often = copy.count >= max(MIN_COPIES, MIN_PER_STEP * steps)
    return copy.place is not None and often and copy.repeats >= MIN_REPEATED * copy.count


def lost(run: Run, breakdown: Breakdown, lost_s: float) -> float:
    """Return the share of the step that is saved with `lost_s` of the host's seconds in copies to the device.

    A copy from pageable memory waits until the device has finished earlier work. No step is shorter than its kernels:
    their time is not saved with the copies.
    """
    share = breakdown.share(Phase.TRANSFER) * lost_s / max(1e-12, seconds(copies(run)))
    found = launches(run, breakdown)
    return share if found is None else max(0.0, min(share, 1 - found.kernels_ms / breakdown.mean_ms))
