"""What is never written to, by its owner's word: nobody else gets hold of it, and copies alone are handed out."""

from typing import Any

__all__ = ["UnwrittenMemory"]


class UnwrittenMemory:
    """Holds what a data set of flatout's own never changes, so that nobody need look whether it did.

    Looking would read all of a table that is mapped from a disk, before each pass.
    """

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        """Hold it for good."""
        self.held = held
