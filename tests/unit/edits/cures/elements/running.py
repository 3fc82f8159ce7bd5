"""Whole scripts, run before and after their elements are edited: what they print, and the error that they end with."""

import contextlib
import io
import warnings

from tests.unit.edits.scripts import edited

HEAD = "import torch\nimport numpy as np\n"


def edited_elements(folder, text):
    """Return a script with its elements read and written as numbers, and why it was left; one of the two is ""."""
    return edited(folder, "element-writes", HEAD + text)


def outcome(text):
    """Return what a script prints, and the kind of error that it ends with."""
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(text.replace("  # <<", ""), "train.py", "exec"), {"__name__": "train"})
        except Exception as raised:
            error = type(raised).__name__
    return printed.getvalue(), error


def is_edited_alike(folder, text):
    """Return whether a script is edited; where it is, it has to print and raise the same."""
    after, left = edited_elements(folder, text)
    assert bool(after) != bool(left)
    if after:
        before = outcome(HEAD + text)
        assert before != ("", ""), "a script that shows nothing proves nothing"
        assert outcome(after) == before, after
    return bool(after)
