"""Whose edits a recipe holds: an edit is code, and runs only where this user made it or has said yes to it.

A seal is a keyed digest of an edit; only who has the key in this user's state folder can make one.
"""

import contextlib
import hmac
import json
import os
from pathlib import Path

from flatout.engine.process.own_key import own_key
from flatout.schema.files import read_whole
from flatout.schema.recipe import Kept
from flatout.schema.trial import EDITED_SOURCE, Equivalence, Selection
from flatout.state_folder import own_folder, state_folder

__all__ = ["allow", "is_trusted", "seal"]

_ALLOWED = "allowed-edits"
_LARGEST_BYTES = 1024 * 1024


def seal(selection: Selection, equivalence: Equivalence) -> str:
    """Return the seal of an edit of this user's; "" for what is no edit."""
    if selection.fix != EDITED_SOURCE:
        return ""
    told = json.dumps([selection.settings, equivalence.value], sort_keys=True)
    return hmac.new(own_key(), told.encode(), "sha256").hexdigest()


def is_trusted(kept: Kept) -> bool:
    """Return whether an edit of a recipe may run: this user's own tune made it, or he has said yes; others may."""
    if kept.selection.fix != EDITED_SOURCE:
        return True
    own = seal(kept.selection, kept.equivalence)
    return hmac.compare_digest(own, kept.seal) or own in _allowed()


def allow(kept: Kept) -> None:
    """Let an edit run from now on, whoever made it; where that cannot be kept, it is asked for again."""
    own = seal(kept.selection, kept.equivalence)
    if own and own not in _allowed():
        with contextlib.suppress(OSError):
            own_folder(state_folder())
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(_file(), flags, 0o600), "w", encoding="ascii") as file:
                file.write(f"{own}\n")


def _allowed() -> frozenset[str]:
    try:
        return frozenset(read_whole(_file(), _LARGEST_BYTES).decode("ascii").split())
    except (OSError, ValueError):
        return frozenset()


def _file() -> Path:
    return Path(state_folder()) / _ALLOWED
