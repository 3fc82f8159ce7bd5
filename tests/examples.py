"""The number of examples of a property test: a quarter in `make test`, all of them in `make test-full`."""

import os

__all__ = ["FULL", "examples"]

FULL = os.environ.get("FLATOUT_TESTS") == "full"


def examples(full: int) -> int:
    """Return how many examples to try here of the `full` number; at least ten."""
    return full if FULL else min(full, max(10, full // 4))
