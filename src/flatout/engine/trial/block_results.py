"""What timed executions wrote: blocks and pairs, read from their part files."""

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from flatout.loader_account import LoaderAccount
from flatout.schema.trial import Pair, Verdict

__all__ = [
    "Failure",
    "Measured",
    "StepAndBetween",
    "enough",
    "first_epoch_of_turns",
    "longer_start_of_turns",
    "pairs_of_turns",
    "phases_of_turns",
    "read_parts",
    "slowest_block",
    "step_and_between",
    "take_record",
]

_LEAST_BETWEEN, _MOST_BETWEEN = 0.1, 50.0  # share of an epoch that is worth a factor of its own, and the largest


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an execution did not end as it should."""

    verdict: Verdict
    reason: str
    of_baseline: bool = False  # it was that of the untouched script, where two processes take turns


@dataclass(slots=True)
class Measured:
    """What the executions of one arm have given so far."""

    pairs: list[Pair] = field(default_factory=list)
    phases: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)  # of blocks in turns: side, milliseconds
    decision: str = ""  # of `analysis.judge`, "not applied" or "failed"; "": none yet
    reason: str = ""
    stood_back: str = ""  # why what never acted left alone what it met
    hits: dict[str, int] = field(default_factory=dict)
    warmup_s: float = 0.0
    failure: Failure | None = None
    wall_s: float = 0.0
    first_pairs: list[Pair] = field(default_factory=list)  # those of the first epoch, of two processes side by side
    once_s: list[float] = field(default_factory=list)  # how much longer the candidate took to start, a start each


def enough(wanted: int) -> Callable[[Sequence[Pair]], str]:
    """Return what ends a timing after `wanted` pairs, whatever they say."""

    def decide(pairs: Sequence[Pair]) -> str:
        return "enough" if len(pairs) >= wanted else ""

    return decide


def read_parts(folder: Path) -> Iterable[list[dict[str, Any]]]:
    """Yield the records of every part file below `folder`; a line that was cut off is left out."""
    for path in sorted((folder / "parts").glob("*-rank*.jsonl")):
        records = []
        with contextlib.suppress(OSError):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    records.append(json.loads(line))
        yield records


def take_record(record: Mapping[str, Any], measured: Sequence[Measured], current: int) -> int:
    """Take one record of an alternation; return the arm under way."""
    kind, arm = record.get("kind"), record.get("arm", -1)
    if kind not in ("begin", "pair", "arm") or not 0 <= arm < len(measured):
        return current
    if kind == "pair":
        measured[arm].pairs.append(Pair(record["baseline_ms"], record["candidate_ms"]))
    elif kind == "arm":
        measured[arm].decision = record["decision"]
        measured[arm].reason = record.get("reason", "")
        measured[arm].warmup_s = record.get("warmup_s", 0.0)
        _count(record.get("sites", ()), measured[arm])
    return int(arm)


def _count(sites: Sequence[Mapping[str, Any]], measured: Measured) -> None:
    hits: dict[str, int] = {}
    for site in sites:
        for name, number in site["hits"].items():
            hits[f"{site['fix'].split()[0]}: {name}"] = number
        measured.reason = measured.reason or site["failure"]
    measured.hits = hits
    measured.stood_back = "" if hits or measured.reason else _stood_back(sites)


def _stood_back(sites: Iterable[Mapping[str, Any]]) -> str:
    """Return why fixes that never acted left alone what they met, an empty string where they met nothing."""
    for site in sites:
        accounts = [LoaderAccount(**told) for told in site["loaders"]]
        left = next((account for account in accounts if account.reason), None)
        if left is not None:
            return f"{left.place}: {left.reason}" if left.place else left.reason
        if site["stood_back"]:
            return str(site["stood_back"])
    return ""


def pairs_of_turns(folder: Path, measured: Measured) -> list[Pair]:
    """Return the pairs of neighbouring blocks that two processes side by side have finished."""
    blocks: dict[int, tuple[float, int]] = {}
    for record in (record for records in read_parts(folder) for record in records):
        if record.get("kind") == "block":
            blocks[record["number"]] = (record["ms"], record["side"])
        if record.get("kind") in ("block", "side") and record["side"] == 1:
            _count(record["sites"], measured)
            measured.warmup_s = record.get("warmup_s", measured.warmup_s)
    pairs = []
    for number in range(0, len(blocks) - 1, 2):
        if number not in blocks or number + 1 not in blocks:
            break
        pairs.append(_pair(blocks[number], blocks[number + 1]))
    return pairs


def first_epoch_of_turns(folder: Path) -> list[Pair]:
    """Return the pairs of two processes side by side that lie in the first epoch of both."""
    early: dict[int, tuple[float, int]] = {}
    for record in (record for records in read_parts(folder) for record in records):
        if record.get("kind") == "block" and record.get("epoch", 0) == 0:
            early[record["number"]] = (record["ms"], record["side"])
    whole = [number for number in sorted(early) if number % 2 == 0 and number + 1 in early]
    return [_pair(early[number], early[number + 1]) for number in whole]


def _pair(one: tuple[float, int], other: tuple[float, int]) -> Pair:
    return Pair(other[0], one[0]) if one[1] else Pair(one[0], other[0])


def longer_start_of_turns(folder: Path) -> float | None:
    """Return how many seconds longer the candidate took until its steps had settled; None where that is not known."""
    took_s: dict[int, float] = {}
    for records in read_parts(folder):
        launched_ns = next((each["value"]["launched_ns"] for each in records if each.get("kind") == "header"), 0)
        for record in records:
            if record.get("kind") == "side" and record.get("began_ns"):
                took_s[record["side"]] = (record["began_ns"] - launched_ns) / 1e9 + record["warmup_s"]
    return took_s[1] - took_s[0] if len(took_s) == 2 else None


def phases_of_turns(folder: Path) -> list[tuple[int, tuple[float, ...]]]:
    """Return for every block of two processes side by side whose it is, and its mean of each phase in milliseconds."""
    records = (record for records in read_parts(folder) for record in records if record.get("kind") == "block")
    return [(record["side"], tuple(record.get("phases_ms", ()))) for record in records]


@dataclass(frozen=True, slots=True)
class StepAndBetween:
    """What a recipe gives in the steps and between epochs, as factors."""

    step: float = 1.0
    between: float = 1.0


def step_and_between(measured: Measured) -> StepAndBetween:
    """Return both, of blocks that were whole epochs: what a mean step takes beyond its phases lies between epochs.

    Where nothing is known of the phases, all that was gained counts as gained in the steps.
    """
    whole = [
        median([pair.baseline_ms for pair in measured.pairs]),
        median([pair.candidate_ms for pair in measured.pairs]),
    ]
    sums: list[list[float]] = [[], []]
    for side, phases in measured.phases:
        sums[side].append(math.fsum(phases))
    if not all(sums) or not all(median(side) > 0 for side in sums):
        return StepAndBetween(step=whole[0] / whole[1])
    steps = [min(median(side), most) for side, most in zip(sums, whole, strict=True)]
    between = [max(most - step, 0.0) for step, most in zip(steps, whole, strict=True)]
    if between[0] < _LEAST_BETWEEN * whole[0]:
        return StepAndBetween(step=whole[0] / whole[1])
    return StepAndBetween(step=steps[0] / steps[1], between=between[0] / max(between[1], between[0] / _MOST_BETWEEN))


def slowest_block(folder: Path, measured: Measured) -> float | None:
    """Return the block of the slowest rank of a process that was one block, None when there is none."""
    found = [r for records in read_parts(folder) for r in records if r.get("kind") == "block"]
    for record in found:
        if record["side"] == 1:
            _count(record["sites"], measured)
            measured.warmup_s = record.get("warmup_s", 0.0)
    return max((record["ms"] for record in found), default=None)
