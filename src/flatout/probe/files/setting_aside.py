"""Ways to set a file or folder aside, each whole or not at all. Standard library only."""

import os
import shutil

__all__ = ["take_by_link", "take_by_move", "take_copy", "take_tree"]


def take_copy(source: str, target: str) -> None:
    """Copy one file, whole or not at all."""
    partial = f"{target}.partial"
    shutil.copy2(source, partial, follow_symlinks=False)
    os.rename(partial, target)


def take_by_move(source: str, target: str) -> None:
    """Move one file, by a copy where it goes to another device."""
    try:
        os.rename(source, target)
    except OSError:  # another device
        take_copy(source, target)


def take_by_link(source: str, target: str) -> None:
    """Give one file a second name, or copy it where that cannot be."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        take_copy(source, target)


def take_tree(source: str, target: str) -> None:
    """Copy a folder, by links where that can be done, whole or not at all."""
    partial = f"{target}.partial"
    shutil.copytree(source, partial, symlinks=True, copy_function=take_by_link)
    os.rename(partial, target)
