"""The errors a user may see: each carries a fact, what it means, and what to do next.

FlatoutError            anything flatout reports to a person; `cli` turns it into an exit code
|- UsageError           2: the command line or a name on it is wrong
|- NothingMeasured      3: the script ran, but nothing could be measured
|- ChangedTooLate       1: what samples are made from changed, seen only after batches were served
|- ScriptFailed         1: the script itself ended with an error
|- BadRecording         2: a recording is corrupt, truncated beyond use, foreign, or of another schema
|- BadObject            2: an object of a store is missing, may not be read, has changed, or does not come whole
|- BadTable             2: files are no table, differ from one another, are damaged, or have changed
|- Interrupted          130: Ctrl-C
"""

from typing import Any

__all__ = [
    "BadObject",
    "BadRecording",
    "BadTable",
    "ChangedTooLate",
    "FlatoutError",
    "Interrupted",
    "NothingMeasured",
    "ScriptFailed",
    "UsageError",
]


class FlatoutError(Exception):
    """A failure told in one voice: `fact` with its number, `meaning`, and `advice` on what to do."""

    exit_code = 1

    def __init__(self, fact: str, meaning: str = "", advice: str = "") -> None:
        """Keep the three parts apart, so that a renderer may set them on lines of their own."""
        super().__init__(fact, meaning, advice)
        self.fact = fact
        self.meaning = meaning
        self.advice = advice
        self.report: Any = None  # the Report on what was measured before, when there is one

    def __str__(self) -> str:
        """Return the parts that are there, joined by one space."""
        return " ".join(part for part in (self.fact, self.meaning, self.advice) if part)


class UsageError(FlatoutError):
    """The command line, or a name on it, is wrong."""

    exit_code = 2


class BadRecording(FlatoutError):
    """A file is not a recording that this version of flatout can read."""

    exit_code = 2


class BadObject(FlatoutError):
    """An object of a store is not what a sample is to be made from: missing, refused, changed, or not whole."""

    exit_code = 2


class BadTable(FlatoutError):
    """Files are no table that can be read whole: missing, damaged, different from one another, or changed meanwhile."""

    exit_code = 2


class NothingMeasured(FlatoutError):
    """The script ran, but no training step could be measured."""

    exit_code = 3


class ChangedTooLate(FlatoutError):
    """A data set changed in a way that is seen too late, after batches of it were served from memory."""

    exit_code = 1


class ScriptFailed(FlatoutError):
    """The script itself ended with an error of its own."""

    exit_code = 1
    refused_its_arguments = False  # before its first step, with the exit code of wrong usage


class Interrupted(FlatoutError):
    """The person pressed Ctrl-C; what was measured is kept."""

    exit_code = 130
