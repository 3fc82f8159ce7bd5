"""What the time between two epochs consists of: restarting workers, the garbage collector, the script's own code."""

import re
from bisect import bisect_right
from collections.abc import Iterable

from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.user_lines import costs, seconds
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import LineCost, LoaderFacts, Outside, Run

__all__ = [
    "between_epochs",
    "collected_share",
    "first_batches",
    "num_pauses",
    "own_code",
    "own_gap_at_end_s",
    "own_gap_s",
    "restart_s",
    "restarting",
]

WAITS_FOR_RANKS = re.compile(r"all_?reduce|all_gather|barrier|broadcast")


def num_pauses(run: Run, stretches: Iterable[Outside]) -> int:
    """Return how often the training stood still for `stretches`: stretches without a step between them are one pause.

    Each batch of a validation is a stretch of its own, and so are the end of a pass and what follows it.
    """
    starts = [step.start_ns for step in run.steps]
    return len({bisect_right(starts, stretch.start_ns) for stretch in stretches})


def own_code(run: Run, loader: LoaderFacts | None) -> tuple[LineCost, ...]:
    """Return what the deep run saw between epochs in the script's own code.

    Left out are the lines that start this loader or the workers of another one, and calls that wait for other ranks.
    """
    starting = [one.iterated_at for one in (loader, *restarting(run)) if one is not None and one.iterated_at]
    starts = {(place.file, place.line) for place in starting}
    return costs(
        run,
        Phase.EPOCH_GAP,
        keep=lambda cost: (
            bool(cost.stack) and (cost.stack[0].file, cost.stack[0].line) not in starts and not _waits_for_ranks(cost)
        ),
    )


def restarting(run: Run) -> list[LoaderFacts]:
    """Return the loaders that end their workers after a pass and start new ones for the next."""
    return [loader for loader in run.loaders if _restarts(loader)]


def own_gap_s(run: Run, loader: LoaderFacts | None) -> float:
    """Return the seconds between epochs not explained by restarting workers or waiting for other ranks."""
    gap_s = _between_epochs_s(run)
    if loader is None or not _restarts(loader):
        return gap_s * (1 - _waiting_share(run))
    seen = seconds(costs(run, Phase.EPOCH_GAP))
    if seen > 0:
        return gap_s * seconds(own_code(run, loader)) / seen
    return max(0.0, gap_s - _starting_s(loader)) if loader.start_s > 0 else 0.0


def own_gap_at_end_s(run: Run, loader: LoaderFacts | None) -> float:
    """Return the same of the one end of an epoch that the deep run has seen, 0 where it saw none."""
    gap_s, seen = run.epoch_end.gap_s if run.epoch_end else 0.0, seconds(costs(run, Phase.EPOCH_GAP))
    return gap_s * seconds(own_code(run, loader)) / seen if seen > 0 else 0.0


def restart_s(run: Run, breakdown: Breakdown, loader: LoaderFacts) -> float:
    """Return the seconds that restarting the workers cost: ending them, starting them, and the first batch after it.

    The account has already moved the extra time of a first batch from its step to the epoch gap.
    """
    if not _restarts(loader) or loader.epochs_started < 2:
        return 0.0
    gaps = [stretch for stretch in run.outside if stretch.phase == Phase.EPOCH_GAP and not stretch.num_batches]
    recorded_s = sum(stretch.wall_ns for stretch in gaps) / 1e9
    first_batches_s = breakdown.outside_s(Phase.EPOCH_GAP) - recorded_s
    restarting_s = _between_epochs_s(run) * (1 - _waiting_share(run)) - own_gap_s(run, loader)
    return max(_starting_s(loader), restarting_s) + max(0.0, first_batches_s)


def _waiting_share(run: Run) -> float:
    """Return the share of the time between epochs in which this rank waits for others."""
    seen = seconds(costs(run, Phase.EPOCH_GAP))
    return seconds(costs(run, Phase.EPOCH_GAP, keep=_waits_for_ranks)) / seen if seen > 0 else 0.0


def collected_share(run: Run) -> tuple[float, float]:
    """Return the shares of the time between epochs in which Python's garbage collector runs: in all, and on request."""
    causes = run.causes
    if causes is None or causes.between_epochs_s <= 0:
        return 0.0, 0.0
    found = causes.collector
    whole_s = causes.between_epochs_s
    return min(1.0, found.between_s / whole_s), min(1.0, found.between_asked_s / whole_s)


def _waits_for_ranks(cost: LineCost) -> bool:
    return cost.leaf == "torch" and WAITS_FOR_RANKS.search(cost.leaf_function) is not None


def _restarts(loader: LoaderFacts) -> bool:
    return loader.num_workers > 0 and not loader.persistent_workers


def _starting_s(loader: LoaderFacts) -> float:
    """Return the seconds in `iter(loader)` of the epochs after the first."""
    return loader.start_s * (loader.epochs_started - 1) / loader.epochs_started if loader.epochs_started > 1 else 0.0


def between_epochs(run: Run) -> list[Outside]:
    """Return the gaps between epochs; time before the first step happens only once and is left out.

    With workers, the extra time of an epoch's first batch, which whole recordings store as a gap with a batch, is left
    out, too. Without workers the training process does that work itself, and it counts.
    """
    begun = run.steps[0].start_ns if run.steps else 0
    loader = training_loader(run)
    workers = loader is not None and loader.num_workers > 0
    gaps = (stretch for stretch in run.outside if stretch.phase == Phase.EPOCH_GAP)
    return [one for one in gaps if one.start_ns > begun and not (workers and one.num_batches)]


def first_batches(run: Run) -> list[Outside]:
    """Return the extra time of the first batches of epochs, in a recording of a whole training."""
    return [stretch for stretch in run.outside if stretch.phase == Phase.EPOCH_GAP and stretch.num_batches]


def _between_epochs_s(run: Run) -> float:
    return sum(stretch.wall_ns for stretch in between_epochs(run)) / 1e9
