"""A diff that somebody wrote, made into an edit of the script's source: found in the project, applied, checked."""

import ast
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.edits.diff import unified_diff
from flatout.errors import UsageError
from flatout.fixes.source.source_edit import SourceEdit, find_file, read_text
from flatout.fixes.source.unified_patch import FilePatch, PatchRefused, parse_patch, patched

__all__ = ["edit_of", "given_edit"]

_MAKE_IT = "Make it with `git diff` or `diff -u`, from the files as they are now."
_UNCHANGED = "Nothing was run."


@dataclass(frozen=True, slots=True)
class _Change:
    """One file before and after, and the name it goes by."""

    name: str
    before: bytes
    after: str


def given_edit(diff: str, name: str, folders: Sequence[Path]) -> SourceEdit:
    """Return the edit that a diff is, under `name`: its files named as seen from `folders`, the working one first.

    Raises:
        UsageError: it is no diff, names a file that is not there, does not fit, or makes something that is not Python.
    """
    try:
        patches = parse_patch(diff)
    except PatchRefused as error:
        raise UsageError(f"{name} cannot be tried: {error}.", _UNCHANGED, _MAKE_IT) from None
    changes = [_change(patch, name, folders) for patch in patches]
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        twice = next(each for each in names if names.count(each) > 1)
        raise UsageError(f"{name} cannot be tried: it changes {twice} twice.", _UNCHANGED, _MAKE_IT)
    return edit_of(name, {each.name: (each.before, each.after.encode()) for each in changes})


def edit_of(name: str, texts: dict[str, tuple[bytes, bytes]]) -> SourceEdit:
    """Return the edit that makes of each file, by its name, the second text from the first."""
    parts = [unified_diff(before, after, path).decode() for path, (before, after) in texts.items()]
    digests = {path: hashlib.sha256(before).hexdigest() for path, (before, _) in texts.items()}
    return SourceEdit(name, "".join(parts), digests)


def _change(patch: FilePatch, name: str, folders: Sequence[Path]) -> _Change:
    """Return what a patch does to its file: that of the first name under which it fits."""
    refused = ""
    for shown in dict.fromkeys(_names(patch, folders)):
        path = find_file(shown, folders)
        if path is None:
            continue
        try:
            before = path.read_bytes()
            after = patched(patch, read_text(before))
        except OSError as error:
            refused = refused or f"{shown} cannot be read ({error.strerror})"
        except PatchRefused as error:
            refused = refused or f"in {shown} {error}"
        except (ValueError, SyntaxError) as error:
            refused = refused or f"{shown} is not text in UTF-8 ({error})"
        else:
            _check_python(name, shown, after)
            return _Change(shown, before, after)
    if refused:
        raise UsageError(f"{name} does not fit: {refused}.", _UNCHANGED, _MAKE_IT)
    where = " nor ".join(str(folder) for folder in folders)
    raise UsageError(
        f"{name} changes {patch.new}, and there is no such file below {where}.",
        _UNCHANGED,
        "Names in a diff are looked up in the working folder and beside the script: start flatout where they begin.",
    )


def _names(patch: FilePatch, folders: Sequence[Path]) -> Iterator[str]:
    """Yield the names that a header may mean: as it is, and without its first part, of either side."""
    for header in (patch.new, patch.old):
        if Path(header).is_absolute():
            within = [folder for folder in folders if Path(header).is_relative_to(folder)]
            yield from (Path(header).relative_to(folder).as_posix() for folder in within)
            continue
        yield from _below(header, folders)


def _below(header: str, folders: Sequence[Path]) -> Iterator[str]:
    """Yield a name without the parts before it: a/ and b/, then the folders that lead from git's top to this one."""
    parts = Path(header).parts
    for start in range(len(parts)):
        led_here = start <= 1 or any(folder.parts[-(start - 1) :] == parts[1:start] for folder in folders)
        if led_here or any(folder.parts[-start:] == parts[:start] for folder in folders):
            yield Path(*parts[start:]).as_posix()


def _check_python(name: str, shown: str, text: str) -> None:
    if not shown.endswith((".py", ".pyw")) and not text.startswith("#!"):
        raise UsageError(
            f"{name} cannot be tried: {shown} is not a Python file.",
            "Edits are served to Python's import; what a program reads by itself stays as it is.",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text.encode(), shown)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" line {error.lineno}:" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else error
        raise UsageError(f"{name} makes {shown} into something that is not Python:{line} {said}.", _UNCHANGED) from None
