"""Whether a script printed the same numbers, and saved the same states: what no tensor of the training shows.

A line is its text, with numbers taken out, and those numbers; None, True and False count as numbers. Lines of one text
follow each other as the untouched script printed them; another execution may leave some out, but prints no numbers that
the untouched script did not print there, and none of them in other words. Numbers that differ between executions of the
untouched script say nothing, nor do those that stand beside a word of time, speed or memory: they are other ones when
the script is faster.
"""

import math
import re
from collections.abc import Iterator, Sequence

from flatout.analysis.samples import Difference, Steps, first_difference
from flatout.schema.trial import Check

__all__ = ["printed_check", "saved_check"]

_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d(?:T[\d:.,]+)?|0x[0-9a-fA-F]+|(?<=\.py:)\d+|(?<=\.py\", line )\d+|"  # lines of edited code move
    r"(?<![\w.:])(?:\d{1,3}:[0-5]\d:[0-5]\d(?:[.,]\d+)?|\d\d:[0-5]\d(?:[.,]\d+)?|\d:[0-5]\d(?![.\d]))"
)
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|"
    r"(?<!\w)(?:[-+]?(?:nan|NaN|NAN|inf|Inf|Infinity)|None|True|False)(?!\w)"  # stand where a number would
)
_TIMED_WORD = re.compile(
    r"time[srd]?(?![a-z])|timestamp|took|takes|elapsed|remain|(?<![a-z])eta(?![a-z])|(?<![a-z])secs?(?![a-z])|seconds"
    r"|per[ _](?:s|sec|second)(?![a-z])|duration|latency|speed|throughput|/s(?:ec|econds?)?(?![a-z])"
    r"|(?<![a-z])(?:[mun]?s(?:/| per )(?:it|iter|step|batch|sample)|fps|hz|dt|[tqi]ps|mfu|rss|ram)(?![a-z])"
    r"|(?<![a-z])(?:pid|port|cpu|gpu)(?![a-z])"
    r"|(?<![a-z])(?:wall|clock|date)|datetime|mem(?:ory)?(?![a-z])|memory_|util(?!ity)|wait|worker|thread|prefetch"
    r"|(?:done|loaded|finished) in[\s:=~]*$",
    re.IGNORECASE,
)
_TIMED_AFTER = re.compile(
    r"\s*(?:[mun\u00b5]s|secs?|seconds?|minutes?|hours?|hz|fps|[kmgt]i?b|[kmg]?\s*\w*/s(?:ec|econds?)?"
    r"|\w+ (?:per|a) (?:s|sec|second))(?!\w)"
    r"|(?:s|m|h|min)(?!\w)|\s+(?:s|h|min)(?!\w)(?!\s*[:=]?\s*\0)",  # in `0.5 min 0.1` it is a name
    re.IGNORECASE,
)
_OTHERS_EACH_TIME = re.compile(f"{_TIMED_WORD.pattern}|[/\\\\]\\w", re.IGNORECASE)  # words of times, paths

_WORDS = frozenset({"None", "True", "False"})
_SETTING = re.compile(r"[A-Za-z_]\w*['\"]?\s*[:=]\s*\Z")
_OF_FIXES = re.compile(  # settings that other ones than the script's may have: `fused: None`, `benchmark=True`
    r"fused|foreach|capturable|differentiable|benchmark|tf32|compile|channels_last|persistent|pin|block|cudnn|amp|autocast"
    r"|enabled|jit|inplace|sparse|worker|dynamic",
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
        if not rounded:  # words may hang on a number that came out a little otherwise
            yield from _reworded(wanted, found)

    check = first_difference("printed numbers", differences())
    return check if not check.passed else first_difference("printed numbers", (), f"{seen} lines")


def saved_check(untouched: Sequence[Steps], candidate: Steps) -> Check:
    """Return whether `candidate` saved the states that the untouched script saves whenever it runs, in that order.

    Some may be left out, and those of the last step are. Parts of a state that are others each time say nothing, such
    as a time; where all parts of one are, nothing is said of any.
    """
    num = min(map(len, (*untouched, candidate)))
    wanted, *others = [[state.split() for step in steps[:num] for state in step.saved] for steps in untouched]
    usual = [_usual(state, [each[at] for each in others if at < len(each)]) for at, state in enumerate(wanted)]
    found = [(step.step, state.split()) for step in candidate[: max(num - 1, 0)] for state in step.saved]
    same = all(any(state) for state in usual)
    known = iter(usual)
    lost = next((at for at, (_, state) in enumerate(found) if not any(_fits(state, each) for each in known)), None)
    what = f"save {(lost or 0) + 1} writes another state than it did"
    different = [(found[lost][0], what)] if lost is not None and same else []
    return first_difference("saved states", different, f"{len(found)} saves" if same else "")


def _usual(state: list[str], others: list[list[str]]) -> list[str]:
    """Return the parts of a state, "" for those that are not the same in all others; nothing where their number is."""
    if any(len(each) != len(state) for each in others):
        return []
    return [part if all(each[at] == part for each in others) else "" for at, part in enumerate(state)]


def _fits(state: list[str], usual: list[str]) -> bool:
    return len(state) == len(usual) and all(part in ("", mine) for part, mine in zip(usual, state, strict=True))


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
    timed, parts = _timed(template), template.split(_GAP)
    return [
        column
        for column in range(len(timed))
        if not timed[column]
        and not (_is_of_fixes(parts[column]) and printed[0][0][2][column] in _WORDS)
        and all(len({lines[row][2][column] for lines in printed}) == 1 for row in range(num))
    ]


def _is_of_fixes(before: str) -> bool:
    """Return whether a value stands behind the name of a setting that a fix may change."""
    name = _SETTING.search(before)
    return name is not None and _OF_FIXES.search(name.group()) is not None


def _timed(template: str) -> list[bool]:
    """Return of each number of a line whether it speaks of time: by words around it, or as the one before it does."""
    found: list[bool] = []
    before, *parts = template.split(_GAP)
    for column, after in enumerate(parts):
        goes_on = bool(found) and found[-1] and not re.search(r"\w", before)  # `0.1 (0.2)`
        is_timed = _TIMED_WORD.search(before[-24:]) or _TIMED_AFTER.match(_GAP.join(parts[column:]))
        found.append(goes_on or bool(is_timed))
        before = after
    return found


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


def _reworded(wanted: Sequence[dict[str, list[_Line]]], found: dict[str, list[_Line]]) -> Iterator[Difference]:
    """Yield lines of words that the untouched script never prints, in place of one with the same beginning.

    `epoch 3: worse` stands for `epoch 3: improved` where that is missing in the step in which it was always printed.
    """
    first, *others = wanted
    usual: dict[tuple[int, str], tuple[str, _Line]] = {}
    for template, lines in first.items():
        if all(_counted(each.get(template, ())) == _counted(lines) for each in others):
            usual |= {(line[0], _beginning(template, line)): (template, line) for line in lines}
    for template, lines in found.items():
        if any(template in each for each in wanted) or any(_timed(template)) or _OTHERS_EACH_TIME.search(template):
            continue
        for step, text, numbers in lines:
            known, line = usual.get((step, _beginning(template, (step, text, numbers))), ("", (0, "", ())))
            if known and (step, line[2]) not in _counted(found.get(known, ())):
                yield step, f"before step {step} ends, `{text.strip()}` is printed, not `{line[1].strip()}`"


def _counted(lines: Sequence[_Line]) -> list[tuple[int, tuple[str, ...]]]:
    return [(step, numbers) for step, _, numbers in lines]


def _beginning(template: str, line: _Line) -> str:
    """Return a line up to its first number, "" where no word stands there."""
    words = template.split(_GAP)[0]
    return f"{words}{line[2][0]}" if re.search(r"[^\W\d_]", words) else ""


def _near(one: str, other: str) -> bool:
    """Return whether two numbers may be one, computed with another rounding; a comparison may tip over."""
    if one in _WORDS or other in _WORDS:
        return {one, other} == {"True", "False"}
    values = float(one), float(other)
    least = _COUNTED if one.lstrip("+-").isdigit() and other.lstrip("+-").isdigit() else _ROUNDED_TO
    return math.isclose(*values, rel_tol=_ROUNDED, abs_tol=least)
