"""Whether a script printed the same numbers, and saved the same states: what no tensor of the training shows.

A line is its text, with numbers taken out, and those numbers. Lines of one text follow each other as the untouched
script printed them; another execution may leave some out, but prints no numbers that the untouched script did not
print there. Numbers that differ between executions of the untouched script say nothing, nor do those that stand beside
a word of time, speed or memory: they are other ones when the script is faster.
"""

import math
import re
from collections.abc import Iterator, Sequence

from flatout.analysis.samples import Difference, Steps, first_difference
from flatout.schema.trial import Check

__all__ = ["printed_check", "saved_check"]

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?<!\w)[-+]?(?:nan|inf)(?!\w)")
_TIMED_BEFORE = re.compile(
    r"(?:time|took|elapsed|remain|\beta\b|\bsec|duration|latency|speed|throughput|/s|per s|fps|\bhz\b|wall|clock|date"
    r"|mem|rss|\bram\b|\bpid\b|\bport\b|\bcpu\b|\bgpu\b|util|wait|worker|thread|prefetch"
    r"|\b(?:done|loaded|finished) in)",
    re.IGNORECASE,
)
_TIMED_AFTER = re.compile(
    r"\s*(?:s|ms|us|µs|ns|h|sec\w*|min(?:utes?)?|hours?|hz|fps|[kmgt]i?b|\w*/s\w*|\w+ (?:per|a) s\w*)(?!\w)",
    re.IGNORECASE,
)

_GAP = "\0"  # stands in a line's text where a number was
_ROUNDED, _ROUNDED_TO, _COUNTED = 0.05, 0.02, 2.0  # differences that other rounding may make: share, number, count

_Line = tuple[int, str, tuple[str, ...]]
"""Step, text as it was printed, and its numbers."""


def printed_check(untouched: Sequence[Steps], candidate: Steps, *, rounded: bool = False) -> Check:
    """Return whether `candidate` printed the numbers that all of `untouched`, the same script several times, printed.

    Steps that all of them made are compared, without the last one: what was printed there may have come later.
    `rounded`: a number counts as the same within a twentieth, within 0.02, and within 2 where it is an integer.
    """
    num = min(map(len, (*untouched, candidate)))
    wanted = [_lines(steps[:num]) for steps in untouched]
    found = _lines(candidate[: max(num - 1, 0)])
    seen = 0

    def differences() -> Iterator[Difference]:
        nonlocal seen
        for template, lines in found.items():
            columns = _columns(template, [of.get(template, []) for of in wanted])
            if columns:
                seen += len(lines)
                yield from _unknown(columns, wanted[0][template], lines, rounded=rounded)

    check = first_difference("printed numbers", differences())
    return check if not check.passed else first_difference("printed numbers", (), f"{seen} lines")


def saved_check(untouched: Sequence[Steps], candidate: Steps) -> Check:
    """Return whether `candidate` saved the states that the untouched script saves whenever it runs, in that order.

    Some may be left out, and those of the last step are.
    """
    num = min(map(len, (*untouched, candidate)))
    wanted, *others = [[state for step in steps[:num] for state in step.saved] for steps in untouched]
    found = [(step.step, state) for step in candidate[: max(num - 1, 0)] for state in step.saved]
    known = iter(wanted)
    same = all(other[: len(wanted)] == wanted[: len(other)] for other in others)
    lost = next((at for at, (_, state) in enumerate(found) if state not in known), None) if same else None
    different = [] if lost is None else [(found[lost][0], f"save {lost + 1} writes another state than it did")]
    return first_difference("saved states", different, f"{len(found)} saves" if same else "")


def _lines(steps: Steps) -> dict[str, list[_Line]]:
    """Return the lines that hold numbers, by their text without them."""
    found: dict[str, list[_Line]] = {}
    for step in steps:
        for text in step.printed:
            bare = _MOMENT.sub("@", text)
            numbers = tuple(_NUMBER.findall(bare))
            if numbers:
                found.setdefault(_NUMBER.sub(_GAP, bare), []).append((step.step, text, numbers))
    return found


def _columns(template: str, printed: Sequence[Sequence[_Line]]) -> list[int]:
    """Return which numbers of a line are the same whenever the untouched script runs, and speak of no time."""
    num = min(len(lines) for lines in printed)
    if num == 0 or any(len(lines) > num + 1 for lines in printed):
        return []
    parts = template.split(_GAP)
    return [
        column
        for column in range(len(parts) - 1)
        if not _TIMED_BEFORE.search(parts[column][-24:])
        and not _TIMED_AFTER.match(parts[column + 1])
        and all(len({lines[row][2][column] for lines in printed}) == 1 for row in range(num))
    ]


def _unknown(
    columns: Sequence[int], wanted: Sequence[_Line], found: Sequence[_Line], *, rounded: bool
) -> Iterator[Difference]:
    """Yield the first of `found` that is not printed where its turn is."""
    place = 0
    for row, (step, text, numbers) in enumerate(found):
        start = place
        while place < len(wanted) and not all(
            numbers[column] == wanted[place][2][column]
            or (rounded and _near(numbers[column], wanted[place][2][column]))
            for column in columns
        ):
            place += 1
        if place == len(wanted):
            usual = wanted[min(max(start, row), len(wanted) - 1)][1]
            yield step, f"before step {step} ends, `{text.strip()}` is printed, not `{usual.strip()}`"
            return
        place += 1


def _near(one: str, other: str) -> bool:
    """Return whether two numbers may be one, computed with another rounding."""
    values = float(one), float(other)
    least = _COUNTED if one.lstrip("+-").isdigit() and other.lstrip("+-").isdigit() else _ROUNDED_TO
    return math.isclose(*values, rel_tol=_ROUNDED, abs_tol=least)
