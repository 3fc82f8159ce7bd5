"""Files that are read and decoded again for each sample: once, by a function that keeps what they give.

    text = open(path).read()                    text, ids = _text_of_file(path)
    ids = [stoi[c] for c in text]
    start = random.randint(0, len(ids) - 9)     start = random.randint(0, len(ids) - 9)

The function asks the system whether the file was written or replaced, and reads it again then. What it gives is shared
where it is only read afterwards; else a copy is made for each sample. What a block reads besides the file must stay as
it is, or be a number or a string that is part of the key.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from flatout.edits.cures.kept_files.block_kinds import RETURNED
from flatout.edits.cures.kept_files.coming_again import comes_again, kept_already
from flatout.edits.cures.kept_files.file_blocks import FileBlock, FileBlocks, Place, place_of
from flatout.edits.cures.kept_files.kept_text import KeptNames, functions, state_function
from flatout.edits.cures.kept_files.read_places import read_places
from flatout.edits.cures.kept_files.reading_effects import effect_of
from flatout.edits.cures.kept_files.shared_uses import SharedUses
from flatout.edits.cures.kept_files.value_kinds import Value, ValueKind
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.name_kinds import NameKinds
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges, lift_out
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["decoded_once"]

_COPIES = {
    ValueKind.LIST: "list({})",
    ValueKind.TABLE: "{}.copy()",
    ValueKind.ARRAY: '{}.copy(order="K")',
    ValueKind.TENSOR: "{}.clone()",
    ValueKind.IMAGE: "{}.copy()",
}
_MODULES = ("functools", "os", "pathlib", "time")
_PACKED = (ValueKind.ARRAY, ValueKind.TENSOR, ValueKind.FROZEN, ValueKind.MEMBER, ValueKind.IMAGE)
_MOST_PROOFS = 12
_NOTHING = "a file that is read and decoded again and again is not found here"


def decoded_once(place: EditPlace) -> WrittenEdit:
    """Keep what files give that are read where the line stands, in what it calls, or what calls it."""
    found: dict[tuple[SourceFile, Place], str] = {}
    proofs = 0
    for source, scope in read_places(place):
        blocks = FileBlocks(place.project, source, scope, NameKinds())
        for block in blocks.found():
            copied, reason = _copied(place.project, block)
            reason = _reason(place.project, block) or reason
            if not reason and proofs < _MOST_PROOFS:
                proofs += 1
                reason = effect_of(place.project, block, blocks.constants)
                if not reason:
                    try:
                        return _Writing(place.project, block, copied).done()
                    except Unplaced:
                        reason = "the change does not fit on this line"
            found.setdefault((source, place_of(block.read.call)), source.at(block.read.call, reason))
        for where, reason in blocks.reasons.items():
            found.setdefault((source, where), reason)
    return WrittenEdit(place.project, left=tuple(found.values())) if found else place.left(_NOTHING)


def _reason(project: Project, block: FileBlock) -> str:
    """Return why a block is left as it is, as far as it can be told from where it stands."""
    source, scope = block.source, block.scope
    if isinstance(scope, Function):
        kept = kept_already(source, scope)
        if kept:
            return kept
    several = len(block.statements) > 1 or len(getattr(block.statements[0], "body", ())) > 1
    for above in source.above(block.statements[0]):
        if above is scope:
            break
        catches = isinstance(above, ast.Try | ast.TryStar) or (
            isinstance(above, ast.With) and "torch" not in ast.unparse(above.items[0])
        )
        if catches and several and block.expression is None and not block.returns:
            return "an error in the middle of it may be caught here"
    if block.read.is_packed and not all(_is_measured(each) for each in block.gives.values()):
        return "what the packed file holds may take any memory"
    if any(each.kind is ValueKind.DEEP for each in block.gives.values()) and _multiplies(block):
        return "what it gives may be far larger than the file"
    if isinstance(scope, ast.Module) and any(isinstance(each, ast.alias) for each in _shared_names(project, block)):
        return "another file takes names from this one"
    return comes_again(project, block)


def _is_measured(value: Value) -> bool:
    """Return whether the new function sees how much memory a value takes."""
    is_list = value.kind is ValueKind.LIST and value.slots
    return value.kind in _PACKED or is_list or (value.kind is ValueKind.ATOM and value.numbers)


def _multiplies(block: FileBlock) -> bool:
    """Return whether a block goes through what it reads once for each item of what it reads."""
    for node in (each for part in block.body for each in ast.walk(part)):
        loops: Sequence[ast.comprehension] = getattr(node, "generators", ())
        if any(not _names(outer.target) & _names(inner.iter) for outer, inner in itertools.pairwise(loops)):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return True
        inside = [each for each in ast.walk(node) if isinstance(each, ast.For | ast.comprehension) and each is not node]
        if isinstance(node, ast.For) and any(not _names(node, ast.Store) & _names(each.iter) for each in inside):
            return True
    return False


def _names(node: ast.AST, kind: type[ast.expr_context] = ast.expr_context) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, kind)}


def _shared_names(project: Project, block: FileBlock) -> Iterator[ast.AST]:
    module = block.source.path.stem
    for source in project.sources:
        for node in ast.walk(source.tree) if source is not block.source else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == module:
                yield from node.names
            elif isinstance(node, ast.Import):
                yield from (each for each in node.names if each.name.rpartition(".")[2] == module)


def _copied(project: Project, block: FileBlock) -> tuple[Mapping[str, str], str]:
    """Return how each value that may be changed later is copied, or why it cannot be."""
    uses, found = SharedUses(project, NameKinds()), dict[str, str]()
    inference = "inference_mode" in project.mentions or "lightning" in project.mentions
    for name, value in block.gives.items():
        if name == RETURNED and block.expression is not None:
            change = uses.change_at(block.source, block.expression, value)
        elif name == RETURNED:
            change = "" if value.kind is ValueKind.ATOM else "it is returned"
        else:
            change = uses.change_of(block.source, name, value, block.scope, block.statements)
        change = change or (
            "tensors of inference mode are others" if inference and value.kind is ValueKind.TENSOR else ""
        )
        if change:
            if value.kind not in _COPIES:
                return {}, f"{'what it gives' if name == RETURNED else name} may be changed, or kept: {change}"
            found[name] = _COPIES[value.kind]
    if found and sum(each.kind is not ValueKind.ATOM for each in block.gives.values()) > 1:
        return {}, "of several objects that may be one, some are changed"
    return found, ""


class _Writing:
    """The change of one file: two or three functions more, and a call in the place of the block."""

    def __init__(self, project: Project, block: FileBlock, copied: Mapping[str, str]) -> None:
        self._project, self._block, self._copied = project, block, copied
        self._source = block.source
        self._changes = TextChanges(block.source)
        wanted = next((each for each in reversed([*block.gives]) if each != RETURNED), "")
        wanted = wanted.strip("_").lower() or "data"
        taken = _taken(self._source)
        self._modules = {each: f"_{each}" if each in taken else each for each in _MODULES}
        imports, bound = block.source.names.imports, block.source.names.bound
        if any(name in bound or imports.get(name, each) != each for each, name in self._modules.items()):
            raise Unplaced
        state = next((each for each in self._states()), "")
        self._has_state = bool(state)
        self._names = KeptNames(
            state or self._free("_state_of_file"), self._free(f"_read_{wanted}"), self._free(f"_{wanted}_of_file")
        )

    def done(self) -> WrittenEdit:
        """Make the change.

        Raises:
            Unplaced: it does not fit.
        """
        if self._block.expression is not None:
            body = [f"return {self._in_function(self._block.expression)}"]
            self._changes.replace(self._block.expression, self._call(RETURNED))
        else:
            body = self._lifted()
        self._add(functions(self._block, self._names, body, self._modules))
        project = self._changes.done(self._project)
        at = self._project.sources.index(self._source)
        for module in _MODULES:
            if self._modules[module] == module:
                project = with_import(project, at, module)
        self._check(project.sources[at])
        return WrittenEdit(project, changed=1)

    def _call(self, name: str) -> str:
        """Return the call of the new function, with a copy around it where one is made."""
        given = ", ".join(self._changes.text(each) for each in (self._block.read.path, *self._block.inputs.values()))
        if "\n" in given:
            raise Unplaced
        call = f"{self._names.keeps}({given})"
        return self._copied.get(name, "{}").format(call)

    def _lifted(self) -> list[str]:
        """Take the statements out, and write the call; return their lines as those of a function."""
        block, first, last = self._block, self._block.statements[0], self._block.statements[-1]
        gives = list(block.gives)
        if block.returns:
            line = f"return {self._call(RETURNED)}"
        elif len(gives) == 1:
            line = f"{gives[0]} = {self._call(gives[0])}"
        else:
            line = f"{', '.join(gives)} = {self._call('')}"
        copies = [f"{each} = {how.format(each)}" for each, how in self._copied.items() if len(gives) > 1]
        lines = lift_out(self._changes, first, last, line)
        self._changes.after(last, *copies) if copies else None
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        changed = self._with_parameters(first.lineno, lines)
        body = [each.removeprefix(indent) for each in changed]
        if any(each.strip() and not full.startswith(indent) for each, full in zip(body, changed, strict=True)):
            raise Unplaced
        return body if block.returns else [*body, f"return {', '.join(gives)}"]

    def _with_parameters(self, first: int, lines: Sequence[str]) -> list[str]:
        """Return lines with the parameters in the place of what they stand for."""
        changed = list(lines)
        for place, name in sorted(self._block.names.items(), reverse=True):
            line, start, last, end = place
            if line != last:
                raise Unplaced
            encoded = changed[line - first].encode()
            changed[line - first] = (encoded[:start] + name.encode() + encoded[end:]).decode()
        return changed

    def _in_function(self, node: ast.expr) -> str:
        line, start, last, end = place_of(node)
        if line != last:
            raise Unplaced
        text = self._source.lines[line - 1]
        behind = len(text.encode()) - end
        changed = self._with_parameters(line, [text])[0] if self._block.names else text
        encoded = changed.encode()
        return encoded[start : len(encoded) - behind].decode()

    def _add(self, lines: Sequence[str]) -> None:
        """Write the functions before the statement of the module that calls them, behind the one above it."""
        body = self._source.tree.body
        at = next(at for at, each in enumerate(body) if self._block.statements[0] in ast.walk(each))
        aliases = [f"import {module} as {alias}" for module, alias in self._modules.items() if alias != module]
        new = [*aliases, *(["", ""] if aliases else [])]
        if not self._has_state:
            new += [*state_function(self._names.state, self._modules).rstrip().split("\n"), "", ""]
        if at == 0:
            raise Unplaced
        self._changes.after(body[at - 1], "", "", *new, *lines)

    def _states(self) -> Iterator[str]:
        """Yield the name of the function that looks at files, where an edit has written it before."""
        for node in self._source.tree.body:
            if isinstance(node, ast.FunctionDef) and re.fullmatch(r"_state_of_file(_\d+)?", node.name):
                same = ast.parse(state_function(node.name, self._modules)).body[0]
                yield from [node.name] if ast.unparse(node) == ast.unparse(same) else []

    def _free(self, wanted: str) -> str:
        """Return a name that the project has nowhere."""
        texts, found, number = "\n".join("\n".join(each.lines) for each in self._project.sources), wanted, 1
        while re.search(rf"\b{found}\b", texts):
            number += 1
            found = f"{wanted}_{number}"
        return found

    def _check(self, after: SourceFile) -> None:
        """Look whether the new functions stand below the imports that they need.

        Raises:
            Unplaced: they do not, or what comes out cannot be compiled.
        """
        found = {each.name: each for each in after.tree.body if isinstance(each, ast.FunctionDef)}
        first = min(found[each].lineno for each in (self._names.state, self._names.reads))
        for module in _MODULES:
            name = self._modules[module]
            places = [
                each.lineno for each in after.tree.body if isinstance(each, ast.Import) and _has(each, module, name)
            ]
            if not places or min(places) > first:
                raise Unplaced
        try:
            compile(after.code, after.shown, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            raise Unplaced from None


def _has(statement: ast.Import, module: str, name: str) -> bool:
    bound = {each.asname or each.name.partition(".")[0] for each in statement.names if each.name.startswith(module)}
    return name in bound


def _taken(source: SourceFile) -> set[str]:
    """Return the names of modules that stand for something else in a file."""
    taken = {each for each in _MODULES if each in source.names.bound}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            taken |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.Import):
            taken |= {each.asname for each in node.names if each.asname and each.asname != each.name}
    return taken
