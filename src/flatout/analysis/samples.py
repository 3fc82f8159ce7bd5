"""Whether two executions saw the same samples in the same order, one by one, wherever their batches were cut."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from flatout.analysis.traces import Interval
from flatout.schema.trial import Check

__all__ = ["Difference", "Steps", "first_difference", "inputs_check", "kept_check", "samples_check"]

_DIGITS = 16  # of the print of one sample
_AHEAD = 8  # samples that must agree again for one to count as missing or added

Steps = Sequence[Interval]


Difference = tuple[int | None, str]
"""The step at which two executions part, and in words how."""


def first_difference(name: str, found: Iterable[Difference], covered: str = "") -> Check:
    """Return a check that fails with the earliest of `found`; `covered` says what a passed one has seen."""
    step, text = min(found, key=lambda one: math.inf if one[0] is None else one[0], default=(None, ""))
    return Check(name=name, passed=not text, value=float(bool(text)), detail=text or covered, step=step)


def samples_check(baseline: Steps, candidate: Steps) -> Check:
    """Return whether the script received the same samples from its loaders, pass by pass."""
    wanted, found = _passes(baseline), _passes(candidate)
    usual, ended = _ended(baseline), _ended(candidate)

    def differences() -> Iterator[Difference]:
        for place, stream in wanted.items():
            where = f"pass {place[1] + 1} over loader {place[0] + 1}"
            over = place in usual and place in ended
            yield from _compare(stream, found.get(place, _Stream()), where, over=over)
            if over and usual[place] != ended[place]:
                yield stream.steps[-1], f"{where} has {ended[place]} batches, not {usual[place]}"

    seen = sum(len(stream.rows) for stream in found.values())
    return first_difference("samples", differences(), f"{seen} samples, {len(ended)} whole passes over a loader")


def inputs_check(baseline: Steps, candidate: Steps, nudged: Steps | None = None) -> Check:
    """Return whether the outermost modules were called with the same samples.

    What a module makes of its weights may be another's input: a state carried over, a generator's picture. Where
    `nudged` weights change what a module is called with, only the number of samples is compared.
    """
    wanted, found = _calls(baseline), _calls(candidate)
    moved = _calls(nudged) if nudged is not None else wanted
    made = {key for key, stream in wanted.items() if _parts(stream, moved.get(key, _Stream()))}

    def differences() -> Iterator[Difference]:
        for key, stream in wanted.items():
            where = f"what {key[0]} is called with{'' if key[1] else ' without gradients'}"
            one, other = stream, found.get(key, _Stream())
            if key in made:
                one, other = one.numbered(), other.numbered()
            yield from _compare(one, other, where, over=True)

    seen = f"{sum(len(one.rows) for key, one in found.items() if key not in made)} samples"
    return first_difference("module inputs", differences(), seen)


def _parts(one: "_Stream", other: "_Stream") -> bool:
    """Return whether two series of samples differ as far as both go."""
    num = min(len(one.rows), len(other.rows))
    return one.rows[:num] != other.rows[:num]


def kept_check(baseline: Steps, candidate: Steps) -> Check:
    """Return whether the batches that the script had received stayed as they were."""
    wanted = {tuple(place) for interval in baseline for place in interval.changed}

    def differences() -> Iterator[Difference]:
        for step, place in ((interval.step, tuple(place)) for interval in candidate for place in interval.changed):
            if place not in wanted:
                yield step, f"batch {place[2] + 1} of pass {place[1] + 1} changed after the script had received it"

    return first_difference("batches kept", differences())


@dataclass(slots=True)
class _Stream:
    """Samples in the order in which they came, with the steps they came in."""

    rows: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def add(self, step: int, num: int, rows: str, rest: str) -> None:
        added = _rows(num, rows, rest)
        self.rows += added
        self.steps += [step] * len(added)

    def numbered(self) -> "_Stream":
        """Return as many samples that say nothing but that they are there."""
        return _Stream([""] * len(self.rows), self.steps)


def _passes(steps: Steps) -> dict[tuple[int, int], _Stream]:
    """Return the samples of each pass over each loader."""
    passes: dict[tuple[int, int], _Stream] = {}
    for interval in steps:
        for loader, which, _, *found in interval.batches:
            passes.setdefault((loader, which), _Stream()).add(interval.step, *found)
    return passes


def _calls(steps: Steps) -> dict[tuple[str, int], _Stream]:
    """Return the samples that each module was called with, with and without gradients."""
    calls: dict[tuple[str, int], _Stream] = {}
    for interval in steps:
        for name, _, _, gradients, *found in interval.calls:
            calls.setdefault((name, gradients), _Stream()).add(interval.step, *found)
    return calls


def _rows(num: int, rows: str, rest: str) -> list[str]:
    """Return a print for each sample of a batch, or one for the batch where it has no samples."""
    cut = [rows[place : place + _DIGITS] for place in range(0, len(rows), _DIGITS)]
    return [row + rest for row in cut] or [rest]


def _ended(steps: Steps) -> dict[tuple[int, int], int]:
    """Return the number of batches of each pass that came to its end."""
    return {(end[0], end[1]): end[2] for interval in steps for end in interval.ends}


def _compare(wanted: _Stream, found: _Stream, where: str, *, over: bool) -> Iterator[Difference]:
    """Yield what differs first; `over`: both are complete, so that their lengths count too."""
    num = min(len(wanted.rows), len(found.rows))
    place = next((place for place in range(num) if wanted.rows[place] != found.rows[place]), None)
    if place is not None:
        yield min(wanted.steps[place], found.steps[place]), _told(wanted.rows, found.rows, place, where)
    elif over and len(wanted.rows) != len(found.rows):
        longer = max(wanted, found, key=lambda stream: len(stream.rows))
        yield longer.steps[num], f"{where}: {len(found.rows)} samples, not {len(wanted.rows)}"


def _told(wanted: Sequence[str], found: Sequence[str], place: int, where: str) -> str:
    """Return in words how two series of samples differ from `place` on."""
    which = f"sample {place + 1} of {where}"
    if wanted[place + 1 : place + 1 + _AHEAD] == found[place : place + _AHEAD] and len(wanted) > place + 1:
        return f"{which} is missing"
    if found[place + 1 : place + 1 + _AHEAD] == wanted[place : place + _AHEAD] and len(found) > place + 1:
        return f"{which} is one too many"
    num = min(len(wanted), len(found))
    missing, extra = Counter(wanted[:num]) - Counter(found[:num]), Counter(found[:num]) - Counter(wanted[:num])
    known = set(wanted)
    if not missing:
        return f"{which} is another one: the same samples come in another order"
    if found[place] in known:
        again = found[place] in set(found[:place])
        return f"{which} is another one{' that had come before' if again else ''}: {sum(missing.values())} are missing"
    return f"{which} has other values, as have {sum(extra.values())} of {num}"
