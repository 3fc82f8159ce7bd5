"""Bounds of settings: the values that a recipe may give a fix, declared beside the fix that takes them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "FOLDER",
    "FUNCTIONS",
    "KIND",
    "ON_CHANGE",
    "PLACE",
    "THREADS",
    "WORKERS",
    "Bound",
    "Bounds",
    "among",
    "within",
]

_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What one setting may be: a number from `least` to `most`, or a text of the form `form`; `words` say it."""

    words: str
    least: float = -math.inf
    most: float = math.inf
    form: str = ""

    def holds(self, value: object) -> bool:
        """Return whether `value`, which is of the setting's type, lies within."""
        if isinstance(value, int | float):
            return self.least <= value <= self.most  # not so a NaN
        return not self.form or (isinstance(value, str) and re.fullmatch(self.form, value) is not None)

    def refusal(self, name: str, value: object) -> str:
        """Return what is wrong with `value`, in words."""
        huge = isinstance(value, int) and abs(value) >= 10**18
        shown = "a number of more than 18 digits" if huge else repr(value)
        return f"{name} = {shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + '...'}, not {self.words}"


Bounds = Mapping[str, Bound]
"""By the setting's name."""


def within(least: float, most: float) -> Bound:
    """Return the bound of a number."""
    return Bound(words=f"a number from {least:g} to {most:g}", least=least, most=most)


def among(*names: str) -> Bound:
    """Return the bound of a text that is one of a few."""
    return Bound(words=f"one of {', '.join(names)}", form="|".join(map(re.escape, names)))


WORKERS = within(0, 512)
THREADS = within(1, 1024)
KIND = among("cuda", "cpu")
PLACE = Bound(words="a file's name, a colon and a line", form=r"[^/\\\x00-\x1f]{1,255}:\d{1,9}")
FOLDER = Bound(
    words="a folder below the working folder, written without '..'",
    form=r"(?!.*(?:^|/)\.\.(?:/|$))[\w.\- ][\w.\- /]{0,999}",
)

ON_CHANGE = among("stop", "warn")

_FUNCTION = r"(?!.*(?:^|/|, )\.\.(?:/|$))[\w.\-][\w.\- /]{0,199}\.py:[\w.<>]{1,200}"
FUNCTIONS = Bound(
    words="at most 20 functions as in 'train.py:blur, data.py:Photos.blur'",
    form=rf"{_FUNCTION}(?:, {_FUNCTION}){{0,19}}",
)
