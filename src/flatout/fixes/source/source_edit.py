"""An edit of the script's source: a diff with a name, bound to what its files held when it was made.

As a `Selection` of the fix `edited-source` it goes the way of every candidate: trials, the recipe, `flatout run`.
"""

import hashlib
import io
import os
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flatout.fixes.source.decorated import decorated, named_functions
from flatout.fixes.source.unified_patch import FilePatch, PatchRefused, parse_patch, patched
from flatout.schema.order import EditedFile
from flatout.schema.trial import COMPILED_PYTHON, EDITED_SOURCE, Selection

__all__ = ["EditedFiles", "SourceEdit", "edited_files", "find_file", "read_text", "source_edits"]


class _Dropped(Exception):
    """Why an edit cannot be served as things are, as a clause."""


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """One edit; its diff names files as they are seen from the folder in which it was made, behind a/ and b/."""

    name: str
    diff: str
    files: Mapping[str, str]  # SHA-256 of each, by its name in the diff

    @classmethod
    def of(cls, selection: Selection) -> "SourceEdit":
        """Return the edit that a selection holds; settings that are none give one that cannot be served."""
        name, diff, files = (selection.settings.get(each) for each in ("edit", "diff", "files"))
        held = {str(path): str(digest) for path, digest in files.items()} if isinstance(files, Mapping) else {}
        return cls(str(name), str(diff), held)

    @property
    def selection(self) -> Selection:
        """The edit as a candidate or a recipe holds it."""
        return Selection(EDITED_SOURCE, {"edit": self.name, "files": dict(self.files), "diff": self.diff})

    @property
    def patches(self) -> dict[str, FilePatch]:
        """What it does to each file, by its name.

        Raises:
            PatchRefused: its diff is none, or is not of the files that it is bound to.
        """
        found = {patch.new.removeprefix("b/"): patch for patch in parse_patch(self.diff)}
        if found.keys() != self.files.keys():
            raise PatchRefused("its diff changes other files than those it is bound to")
        return found

    def served(self, folders: Sequence[Path], before: Mapping[str, EditedFile]) -> dict[str, EditedFile]:
        """Return its files with their edited text, on top of what edits before it have made of them.

        Raises:
            PatchRefused, _Dropped: a file is gone or has changed, or the diff does not fit.
        """
        found = {}
        for name, patch in self.patches.items():
            path = find_file(name, folders)
            if path is None:
                raise _Dropped(f"there is no file {name}")
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != self.files[name]:
                raise _Dropped(f"{name} has changed since the edit was made")
            real = str(path.resolve())
            one = before.get(real) or EditedFile(path=real, digest=self.files[name], text=read_text(data))
            try:
                text = patched(patch, one.text)
            except PatchRefused as error:
                others = " and ".join(f"edit {edit}" for edit in one.edits)
                fact = f"it changes lines of {name} that {others} has changed" if others else f"in {name} {error}"
                raise _Dropped(fact) from None
            found[real] = EditedFile(path=real, digest=one.digest, text=text, edits=(*one.edits, self.name))
        return found


@dataclass(frozen=True, slots=True)
class EditedFiles:
    """The files that edits change, with their edited text; and edits that cannot be served, each with the reason."""

    files: tuple[EditedFile, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)


def source_edits(selections: Iterable[Selection]) -> list[SourceEdit]:
    """Return the edits among `selections`."""
    return [SourceEdit.of(each) for each in selections if each.fix == EDITED_SOURCE]


def edited_files(selections: Iterable[Selection], folders: Sequence[Path]) -> EditedFiles:
    """Return what the edits among `selections` make of their files, each on top of those before it.

    Names are looked up in `folders`, in their order.
    """
    found: dict[str, EditedFile] = {}
    dropped: dict[str, str] = {}
    selections = tuple(selections)
    for edit in source_edits(selections):
        try:
            found |= edit.served(folders, found)
        except (_Dropped, ValueError, SyntaxError) as error:  # no diff, or text in another encoding
            dropped[edit.name] = str(error)
        except OSError as error:
            dropped[edit.name] = f"{error.filename} cannot be read ({error.strerror})"
    for selection in selections:
        if selection.fix == COMPILED_PYTHON:
            compiled = _with_compiled(str(selection.settings.get("functions", "")), folders, found)
            if not compiled:
                dropped[COMPILED_PYTHON] = "none of its functions is in the script's files any more"
            found |= compiled
    return EditedFiles(tuple(found.values()), dropped)


def _with_compiled(setting: str, folders: Sequence[Path], before: Mapping[str, EditedFile]) -> dict[str, EditedFile]:
    """Return the files in which functions are compiled, on top of what edits have made of them."""
    found: dict[str, EditedFile] = {}
    for name, functions in named_functions(setting).items():
        path = find_file(name, folders)
        if path is None:
            continue
        real = str(path.resolve())
        try:
            data = path.read_bytes()
            one = before.get(real) or EditedFile(
                path=real, digest=hashlib.sha256(data).hexdigest(), text=read_text(data)
            )
            text = decorated(one.text, functions)
        except (OSError, ValueError, SyntaxError):  # as it is, the script says what is wrong with it
            continue
        if text != one.text:
            edits = (*one.edits, COMPILED_PYTHON)
            found[real] = EditedFile(path=real, digest=one.digest, text=text, edits=edits)
    return found


def read_text(data: bytes) -> str:
    """Return the text of a Python file, with its line ends.

    Raises:
        ValueError, SyntaxError: it is not in UTF-8, as a recipe with its lines could not be either.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    if encoding not in ("utf-8", "utf-8-sig"):
        raise ValueError(f"it is written in {encoding}, not in UTF-8")
    return data.decode("utf-8")


def find_file(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the file of that name below one of `folders`; a name that leads out of them finds nothing."""
    if os.path.isabs(name) or ".." in Path(name).parts:
        return None
    return next((folder / name for folder in folders if (folder / name).is_file()), None)
