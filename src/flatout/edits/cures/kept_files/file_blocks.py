"""Blocks of statements that read one file and decode it, with what they take from outside and what they give."""

import ast
import builtins
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from flatout.edits.cures.kept_files.block_bounds import (
    BY_NAME,
    added_to,
    ends_with_return,
    free_name,
    imports_name,
    is_once,
    is_same,
    shared_names,
    start_of,
)
from flatout.edits.cures.kept_files.block_kinds import RETURNED, BlockKinds, Unkept
from flatout.edits.cures.kept_files.bound_names import BoundNames
from flatout.edits.cures.kept_files.file_reads import FileRead, file_read
from flatout.edits.cures.kept_files.module_constants import ModuleConstants
from flatout.edits.cures.kept_files.value_kinds import ATOM, Value, ValueKind
from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.name_kinds import NameKind, NameKinds
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["FileBlock", "FileBlocks", "Place", "place_of"]

Place = tuple[int, int, int, int]
_LIBRARY = ("torch.", "numpy.", "math.", "string.", "PIL.", "json.", "csv.", "os.path.", "struct.", "re.", "array.",
            "unicodedata.", "pathlib.", "io.", "gzip.", "bz2.", "lzma.", "wave.", "soundfile.", "scipy.", "cv2.",
            "torchvision.", "torchaudio.", "itertools.", "collections.", "functools.", "operator.")  # fmt: skip
_TEXT = frozenset({"join", "strip", "split", "format", "endswith", "startswith", "lower", "upper"})


def place_of(node: ast.expr | ast.stmt) -> Place:
    """Return where a node stands, by which a copy of it is known."""
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


@dataclass(frozen=True)
class FileBlock:
    """A block that can become a function.

    Attributes:
        statements: those that follow one another; the last one may return.
        expression: the part of the only statement that is meant; None for whole statements.
        read: the call that reads the file.
        path: the name of the function's first parameter.
        inputs: what the function is given besides, by the names of its parameters.
        names: parameters by the places that they stand in for.
        gives: what is used later, by its name, with its kind.
        body: the function's statements.
    """

    source: SourceFile
    scope: ast.AST
    statements: tuple[ast.stmt, ...]
    expression: ast.expr | None
    read: FileRead
    path: str
    inputs: Mapping[str, ast.expr]
    names: Mapping[Place, str]
    gives: Mapping[str, Value]
    body: tuple[ast.stmt, ...]

    @property
    def returns(self) -> bool:
        """Whether the statements end with a `return`."""
        return self.expression is None and RETURNED in self.gives

    @property
    def parts(self) -> list[ast.expr | ast.stmt]:
        """What is replaced."""
        return [self.expression] if self.expression is not None else [*self.statements]


class FileBlocks:
    """The blocks of one function or module."""

    def __init__(self, project: Project, source: SourceFile, scope: ast.AST, names: NameKinds) -> None:
        """Take the scope; `reasons` says afterwards why blocks were left."""
        self._project, self._source, self._scope, self._names = project, source, scope, names
        first = next(each for each in source.tree.body if scope is source.tree or scope in ast.walk(each))
        self.constants = ModuleConstants(project, names, source, first)
        self.reasons: dict[Place, str] = {}

    def found(self) -> Iterator[FileBlock]:
        """Yield blocks, for each file that is read the longest first."""
        calls = [each for each in ast.walk(self._scope) if self._source.scope(each) is self._scope]
        reads = [file_read(self._source, self._names, each) for each in calls]
        for read in sorted((each for each in reads if each is not None), key=lambda each: place_of(each.call)):
            statement = self._source.statement(read.call)
            if not is_once(self._source, read.call, statement):
                self._note(read.call, "the file is read in a condition or a loop of one expression")
                continue
            yield from self._statements(read, statement)
            yield from self._expressions(read, statement)

    def _note(self, node: ast.expr, reason: str) -> None:
        self.reasons.setdefault(place_of(node), self._source.at(node, reason))

    def _statements(self, read: FileRead, statement: ast.stmt) -> Iterator[FileBlock]:
        block = block_of(self._source, statement)
        start = block.index(statement)
        found: list[FileBlock] = []
        for end in range(start + 1, len(block) + 1):
            first = start_of(block, start, end)
            try:
                found.append(self._made(read, block[first:end], None))
            except Unkept as why:
                self._note(read.call, str(why))
                if not self._may_go_on(block[first:end], read):
                    break
            if ends_with_return(block[end - 1]):
                break
        yield from reversed(found)

    def _may_go_on(self, statements: Sequence[ast.stmt], read: FileRead) -> bool:
        """Return whether a longer block may be kept where this one gives something that cannot be."""
        try:
            self._parts(read, statements, None)
        except Unkept:
            return False
        return True

    def _expressions(self, read: FileRead, statement: ast.stmt) -> Iterator[FileBlock]:
        around: list[ast.expr] = [read.call]
        for above in self._source.above(read.call):
            if not isinstance(above, ast.expr | ast.keyword | ast.comprehension):
                break
            around += [above] if isinstance(above, ast.expr) else []
        for each in reversed(around):
            try:
                yield self._made(read, [statement], each)
            except Unkept as why:
                self._note(read.call, str(why))

    # -- one block ----------------------------------------------------------------------------------------------

    def _parts(
        self, read: FileRead, statements: Sequence[ast.stmt], expression: ast.expr | None
    ) -> tuple[BoundNames, str, dict[str, ast.expr], dict[Place, str]]:
        """Return the names of a block, and what is handed to it."""
        whole = [ast.Return(expression)] if expression is not None else list(statements)
        others = [each for part in whole for each in ast.walk(part) if each is not read.call]
        for each in others:
            other = file_read(self._source, self._names, each)
            if other is not None and not (isinstance(read.path, ast.Name) and is_same(other.path, read.path)):
                raise Unkept("two files are read")
        if sum(isinstance(each, ast.Return) for each in others) > ends_with_return(whole[-1]):
            raise Unkept("it may return before its end")
        names = BoundNames(whole)
        shared = shared_names(self._scope) & (names.maybe | BY_NAME)
        if shared:
            raise Unkept(f"{min(shared)} is a name of other functions, or reads names")
        path, inputs, places = self._inputs(read, names)
        return names, path, inputs, places

    def _made(self, read: FileRead, statements: Sequence[ast.stmt], expression: ast.expr | None) -> FileBlock:
        names, path, inputs, places = self._parts(read, statements, expression)
        whole: list[ast.stmt] = [ast.Return(expression)] if expression is not None else list(statements)
        body: list[ast.stmt] = [_Renamed(places).visit(copy.deepcopy(each)) for each in whole]  # type: ignore[misc]
        known = {path: ATOM} | dict.fromkeys(inputs, ATOM)
        BlockKinds(self._project, self._source, self._names, self.constants.value).run(body, known)
        gives = self._given(names, statements, expression, known)
        ends = expression is None and not ends_with_return(whole[-1])
        tail = [ast.parse(f"return {', '.join(gives)}").body[0]] if ends else []
        return FileBlock(
            source=self._source,
            scope=self._scope,
            statements=tuple(statements),
            expression=expression,
            read=read,
            path=path,
            inputs=inputs,
            names=places,
            gives=gives,
            body=(*body, *tail),
        )

    def _given(
        self,
        names: BoundNames,
        statements: Sequence[ast.stmt],
        expression: ast.expr | None,
        known: Mapping[str, Value],
    ) -> dict[str, Value]:
        """Return what is used outside of a block, with its kind."""
        if expression is not None or ends_with_return(statements[-1]):
            gives = {RETURNED: known[RETURNED]}
        else:
            inside = {each for part in statements for each in ast.walk(part)}
            nodes = (each for each in ast.walk(self._scope) if each not in inside and isinstance(each, ast.Name))
            used = {each.id for each in nodes if not isinstance(each.ctx, ast.Store)}
            used |= added_to(self._scope, inside)
            if used & (names.maybe - names.bound):
                raise Unkept(f"{min(used & (names.maybe - names.bound))} is not bound in every case")
            order = [name for name in known if name in used and name in names.bound]
            gives = {name: known[name] for name in order}
        for name, value in gives.items():
            if value.kind is ValueKind.NPY and self._is_array(name, expression):
                gives[name] = Value(ValueKind.ARRAY)
            elif value.kind in (ValueKind.LAZY, ValueKind.UNKNOWN, ValueKind.NPY, ValueKind.VIEW):
                what = "what it gives" if name == RETURNED else name
                raise Unkept(f"{what} is {value.kind.value}; {self.constants.reason}".rstrip("; "))
        if not gives:
            raise Unkept("nothing of it is used")
        return gives

    def _is_array(self, name: str, expression: ast.expr | None) -> bool:
        """Return whether something is done with what `numpy.load` gives that no archive can do."""
        uses = [each for each in ast.walk(self._scope) if isinstance(each, ast.Name) and each.id == name]
        for node in [expression] if expression is not None else uses:
            above = self._source.parents[node]
            if isinstance(above, ast.Subscript) and above.value is node:
                parts = above.slice.elts if isinstance(above.slice, ast.Tuple) else [above.slice]
                if any(isinstance(each, ast.Slice) for each in parts):
                    return True
            if isinstance(above, ast.Attribute) and above.attr in ("shape", "dtype", "ndim", "size", "astype", "T"):
                return True
        return False

    # -- what it takes ------------------------------------------------------------------------------------------

    def _inputs(self, read: FileRead, names: BoundNames) -> tuple[str, dict[str, ast.expr], dict[Place, str]]:
        """Return the parameter for the path, the others, and the places that they stand in for."""
        in_path = {each for each in ast.walk(read.path) if isinstance(each, ast.Name)}
        if in_path - {*names.taken}:
            raise Unkept("the path is made in the same block")
        used = names.maybe | {each.id for each in names.taken if each not in in_path}
        is_local = isinstance(read.path, ast.Name) and self._is_local(read.path)
        path = read.path.id if is_local and isinstance(read.path, ast.Name) else free_name("path", used)
        places = {place_of(read.path): path}
        inputs: dict[str, ast.expr] = {}
        for name in names.taken:
            if name in in_path or (is_local and name.id == path):
                continue
            if self._stays(name):
                continue
            node: ast.expr = name
            above = self._source.parents[node]
            while isinstance(above, ast.Attribute) and not self._is_called(above):
                node, above = above, self._source.parents[above]
            self._check_input(node, above)
            self._check_is_setting(node, name)
            known = next((each for each, other in inputs.items() if is_same(other, node)), None)
            wanted = node.attr if isinstance(node, ast.Attribute) else name.id
            parameter = known or (wanted if node is name else free_name(wanted, used | {path, *inputs}))
            inputs[parameter] = node
            places[place_of(node)] = parameter
        return path, inputs, places

    def _is_called(self, node: ast.Attribute) -> bool:
        call = self._source.parents[node]
        return isinstance(call, ast.Call) and call.func is node

    def _check_input(self, node: ast.expr, above: ast.AST) -> None:
        """Refuse what is used as a table: it may change, and is no part of a key.

        Raises:
            Unkept: it is.
        """
        shown = ast.unparse(node)
        is_table = isinstance(above, ast.Subscript) and above.value is node
        is_table |= isinstance(above, ast.comprehension | ast.For) and above.iter is node
        is_table |= isinstance(above, ast.Compare) and isinstance(above.ops[0], ast.In | ast.NotIn)
        is_table |= isinstance(above, ast.Attribute) and above.attr not in _TEXT
        is_table |= isinstance(above, ast.Call) and above.func is node
        if is_table or (isinstance(node, ast.Name) and node.id in ("self", "cls")):
            why = f" ({self.constants.reason})" if self.constants.reason else ""
            raise Unkept(f"it depends on {shown}, which may change{why}")

    def _check_is_setting(self, node: ast.expr, name: ast.Name) -> None:
        """Refuse what is another one in each call: nothing that was kept would be found again.

        Raises:
            Unkept: it may be.
        """
        if isinstance(node, ast.Attribute):
            if node.attr in self._project.functions:
                raise Unkept(f"{ast.unparse(node)} may be a property")
            return
        scope = self._scope
        given = [each.arg for each in ast.walk(scope.args) if isinstance(each, ast.arg)] if _is_function(scope) else []
        is_given = name.id in given and getattr(scope, "name", "") != "__getitem__"
        stored = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == name.id]
        is_bound = any(not isinstance(each.ctx, ast.Load) for each in stored)
        inside = any(
            isinstance(each, ast.Subscript) and name in ast.walk(each.slice) for each in self._source.above(name)
        )
        if inside or is_bound or not is_given:
            raise Unkept(f"{name.id} may be another one for each sample")

    def _stays(self, name: ast.Name) -> bool:
        """Return whether a name stands for one thing wherever it is read in this module.

        Raises:
            Unkept: it stands for what a function elsewhere in the module does not see.
        """
        kind = self._names.kind(self._source, name)
        if self._is_local(name):
            return False
        if kind is NameKind.BUILTIN and hasattr(builtins, name.id):
            return True
        if kind is NameKind.FUNCTION:
            return any(isinstance(each, Function) and each.name == name.id for each in self._source.tree.body)
        if kind is NameKind.IMPORT:
            if not any(imports_name(each, name.id) for each in self._source.tree.body):
                raise Unkept(f"{name.id} is imported in a function")
            return self._is_library(name)
        if kind is NameKind.VARIABLE:
            return self.constants.value(self._source, name.id).kind is not ValueKind.UNKNOWN
        raise Unkept(f"what {name.id} stands for is not followed")

    def _is_library(self, name: ast.Name) -> bool:
        node: ast.expr = name
        while isinstance(above := self._source.parents[node], ast.Attribute):
            node = above
        dotted = self._source.names.dotted(node)
        last = dotted.rpartition(".")[2]
        if last in self._project.functions and (node is name or self._is_called(node)):  # type: ignore[arg-type]
            return True
        if dotted.startswith(_LIBRARY) or f"{dotted}." in _LIBRARY:
            return True
        return node is name and self.constants.value(self._source, name.id).kind is not ValueKind.UNKNOWN

    def _is_local(self, name: ast.Name) -> bool:
        """Return whether a name is a variable of the function, or of one around it."""
        for scope in (self._scope, *self._source.above(self._scope)):
            if not isinstance(scope, Function | ast.Lambda):
                continue
            for each in ast.walk(scope):
                if isinstance(each, ast.Global | ast.Nonlocal) and name.id in each.names:
                    return True
                if isinstance(each, ast.arg) and each.arg == name.id and self._source.scope(each) is scope:
                    return True
                is_name = isinstance(each, ast.Name) and each.id == name.id and not isinstance(each.ctx, ast.Load)
                if is_name and self._source.scope(each) is scope:
                    return True
                is_function = isinstance(each, Function | ast.ClassDef) and each.name == name.id and each is not scope
                if is_function and self._source.scope(each) is scope:
                    return True
        return False


class _Renamed(ast.NodeTransformer):
    """Puts parameters in the place of expressions."""

    def __init__(self, places: Mapping[Place, str]) -> None:
        self._places = places

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and hasattr(node, "lineno") and place_of(node) in self._places:
            return ast.copy_location(ast.Name(self._places[place_of(node)], ast.Load()), node)
        return self.generic_visit(node)


def _is_function(scope: ast.AST) -> TypeGuard[Function | ast.Lambda]:
    return isinstance(scope, Function | ast.Lambda)
