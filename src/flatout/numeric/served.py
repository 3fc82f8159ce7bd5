"""What compiled functions tell of themselves; a fix that watches them replaces these functions by its own."""

import sys

__all__ = ["acts", "differs", "leaves", "note"]


def acts() -> bool:
    """Return whether compiled code is used at all."""
    return True


def note(name: str) -> None:
    """Compiled code is used for the function or loop `name` from now on."""
    del name


def leaves(name: str, reason: str) -> None:
    """The function or loop `name` stays as it is."""
    del name, reason


def differs(name: str, reason: str) -> None:
    """Compiled code of `name` has given something else than Python: tell whoever watches the training."""
    if sys.stderr is not None:
        sys.stderr.write(f"flatout: compiled {name} {reason}; Python runs it from now on\n")
        sys.stderr.flush()
