"""Edits of a recipe written into a project: diffs applied to files that may have changed elsewhere since."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile, read_source
from flatout.edits.written_edit import WrittenEdit
from flatout.fixes.source.source_edit import SourceEdit, find_file, read_text, source_edits
from flatout.fixes.source.unified_patch import FilePatch, PatchRefused, patched
from flatout.schema.trial import Selection

__all__ = ["with_edited_files", "write_edit_in"]


def with_edited_files(project: Project, selections: Iterable[Selection], folders: Sequence[Path]) -> Project:
    """Return the project with the files of its edits that the script does not import in sight."""
    sources = list(project.sources)
    for edit in source_edits(selections):
        for name in edit.files:
            path = find_file(name, folders)
            if path is not None and all(each.path != path.resolve() for each in sources):
                try:
                    sources.append(read_source(path.resolve(), name))
                except (OSError, SyntaxError):  # `write_edit_in` says that it is not there
                    continue
    return Project(tuple(sources), project.notes)


def write_edit_in(project: Project, edit: SourceEdit) -> WrittenEdit:
    """Write all of an edit or nothing: half of it is another program."""
    done, changed, there = project, 0, 0
    try:
        for name, patch in edit.patches.items():
            source = _source(project, name)
            if source is None:
                return WrittenEdit(project, left=(f"there is no file {name} that flatout reads",))
            text = read_text(source.code)
            if _fits(patch.inverse, text) and not _fits(patch, text):
                there += len(patch.hunks)
                continue
            done = done.with_code(source.path, patched(patch, text).encode())
            changed += len(patch.hunks)
    except PatchRefused as error:
        return WrittenEdit(project, left=(f"{error}: the file has changed since the edit was made",))
    except (ValueError, SyntaxError) as error:
        return WrittenEdit(project, left=(str(error),))
    return WrittenEdit(done, changed, there)


def _source(project: Project, name: str) -> SourceFile | None:
    beside = project.script.path.parent / name
    return next((each for each in project.sources if each.shown == name or each.path == beside), None)


def _fits(patch: FilePatch, text: str) -> bool:
    try:
        patched(patch, text)
    except PatchRefused:
        return False
    return True
