"""The files of the script whose text is another one in this process, and who is told when one of them is served."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterable

from flatout.schema.order import EditedFile

__all__ = ["ServedFiles", "served_here"]

Told = Callable[[str], None]


class ServedFiles:
    """The edited files of one process.

    A file that is not what its edit was made for is left as it is, and so are all files of that edit: half of an edit
    is another program. The reason is said once, in one line on stderr.
    """

    def __init__(self, files: Iterable[EditedFile]) -> None:
        """Take the files, and leave out those of an edit that does not fit any more."""
        self._files = {file.path: file for file in files}
        self._served: dict[str, list[str]] = {}  # by edit: names of files
        self._left: dict[str, str] = {}  # edit: why it is not served
        self._followers: dict[str, list[tuple[Told, Told]]] = {}  # by edit
        for file in list(self._files.values()):
            if _digest(file.path) != file.digest:
                self.leave(file, f"{os.path.basename(file.path)} has changed since the edit was made")

    def find(self, path: str) -> EditedFile | None:
        """Return the edited form of a file, None where it has none."""
        return self._files.get(os.path.realpath(path)) if self._files else None

    @property
    def module_names(self) -> frozenset[str]:
        """The last parts of the names under which edited files are imported."""
        stems = (os.path.splitext(os.path.basename(path))[0] for path in self._files)
        folders = (os.path.basename(os.path.dirname(path)) for path in self._files)
        return frozenset((*stems, *folders))

    def serve(self, file: EditedFile) -> None:
        """Note that the edited text of `file` is run from now on."""
        name = os.path.basename(file.path)
        for edit in file.edits:
            self._served.setdefault(edit, []).append(name)
            for on_served, _ in self._followers.get(edit, ()):
                on_served(name)

    def leave(self, file: EditedFile, reason: str) -> None:
        """Run `file` as it is on disk, and whatever else its edits have changed."""
        gone: set[str] = set()
        more = set(file.edits)
        while more - gone:  # files that several edits have changed take these with them
            gone |= more
            more = {edit for each in self._files.values() if gone & set(each.edits) for edit in each.edits}
        self._files = {path: each for path, each in self._files.items() if not gone & set(each.edits)}
        for edit in sorted(gone - self._left.keys()):
            self._left[edit] = reason
            _say(f"edit {edit} is left out: {reason}; the file runs as it is")
            for _, on_left in self._followers.get(edit, ()):
                on_left(reason)

    def follow(self, edit: str, on_served: Told, on_left: Told) -> None:
        """Tell of every file of `edit` that is served, by its name, or why none is."""
        self._followers.setdefault(edit, []).append((on_served, on_left))
        if edit in self._left:
            on_left(self._left[edit])
        for name in self._served.get(edit, ()):
            on_served(name)
        if edit not in self._left and not any(edit in file.edits for file in self._files.values()):
            on_left("its text was not handed over to this process")


_here: list[ServedFiles] = []


def served_here(files: Iterable[EditedFile] = ()) -> ServedFiles:
    """Return the edited files of this process; the first call says which these are."""
    if not _here:
        _here.append(ServedFiles(files))
    return _here[0]


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _say(line: str) -> None:
    """Tell whoever watches the training; a process without stderr tells nobody."""
    if sys.stderr is not None:
        sys.stderr.write(f"flatout: {line}\n")
        sys.stderr.flush()
