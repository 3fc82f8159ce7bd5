"""Variables of a module that stay what they are once the code that reads them can run.

Such a variable is bound by the module alone, outside of loops, before the function that reads it is defined, and what
it stands for is only read wherever the project names it.
"""

import ast
from collections.abc import Iterator

from flatout.edits.cures.kept_files.block_kinds import BlockKinds, Unkept
from flatout.edits.cures.kept_files.shared_uses import SharedUses
from flatout.edits.cures.kept_files.value_kinds import UNKNOWN, Value, ValueKind
from flatout.edits.reading.blocks import bound_as_words
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.effects.set_attributes import SetAttributes
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.name_kinds import NameKinds
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["ModuleConstants"]

_DYNAMIC = frozenset({"globals", "exec", "eval", "vars", "reload", "modules", "__dict__"})
_Node = ast.Name | ast.Attribute


class ModuleConstants:
    """Tells which variables of modules stay, and what kind of value they stand for."""

    def __init__(self, project: Project, names: NameKinds, source: SourceFile, first: ast.stmt) -> None:
        """`first`: the statement of the module that the code which reads them is part of."""
        self._project, self._names = project, names
        self._source, self._first = source, first
        self._uses = SharedUses(project, names)
        self._set = SetAttributes(project)
        self._found: dict[tuple[SourceFile, str], Value] = {}
        self.reason = ""

    def value(self, source: SourceFile, name: str) -> Value:
        """Return what a variable is, UNKNOWN where it may change; `reason` says why."""
        home, name = self._home(source, name)
        if home is None:
            self.reason = f"what {name} stands for is not seen"
            return UNKNOWN
        if (home, name) not in self._found:
            self._found[home, name] = UNKNOWN  # while it is being read
            self._found[home, name] = self._read(home, name)
        return self._found[home, name]

    def _home(self, source: SourceFile, name: str) -> tuple[SourceFile | None, str]:
        """Return the file whose module binds a name, and its name there."""
        dotted = source.names.imports.get(name, "")
        if not dotted:
            return source, name
        module, _, name = dotted.rpartition(".")
        last = module.rpartition(".")[2]
        homes = [each for each in self._project.sources if last in (each.path.stem, each.path.parent.name)]
        homes = [each for each in homes if each.path.stem in (last, "__init__")]
        return (homes[0], name) if len(homes) == 1 else (None, name)

    def _read(self, home: SourceFile, name: str) -> Value:
        said = next(self._changes(home, name), "")
        value = UNKNOWN if said else self._made(home, name)
        if not said and value.kind in (ValueKind.UNKNOWN, ValueKind.LAZY, ValueKind.NPY):
            said = f"what {name} holds is not known"
        if not said:
            said = next(filter(None, self._shared(home, name, value)), "")
        if said:
            self.reason = f"{name} may change: {said}" if not said.startswith("what ") else said
            return UNKNOWN
        return value

    def _changes(self, home: SourceFile, name: str) -> Iterator[str]:
        """Yield why a name may stand for something else later."""
        for source, node in self._project.nodes(ast.Name, ast.Attribute):
            is_other = isinstance(node, ast.Attribute) and node.attr != "__dict__" and not source.names.dotted(node)
            if last_name(node) in _DYNAMIC and not is_other:  # model.eval() is another one
                yield f"{last_name(node)} may change it"
        for source, call in self._project.nodes(ast.Call):
            if last_name(call.func) == "setattr" and _sets(source, call, name):
                yield f"`{ast.unparse(call)}` may change it"
        yield from self._bindings(home, name)

    def _bindings(self, home: SourceFile, name: str) -> Iterator[str]:
        """Yield why the module or somebody else may bind a name again."""
        if name in bound_as_words([home.tree]):
            yield "it is bound in several ways"
        for _, node in self._project.nodes(ast.Global, ast.Nonlocal):
            if name in node.names:
                yield "a function sets it"
        if name in self._set.on_modules:
            yield "it is set from outside"
        for node in self._stores(home, name):
            if not any(target is node for target, _ in pairs(home.statement(node))):
                yield f"`{ast.unparse(home.statement(node)).splitlines()[0]}` binds it"
            elif not self._is_before(home, node):
                yield "it is bound after the function that reads it, or in a loop"

    def _stores(self, home: SourceFile, name: str) -> list[ast.Name]:
        nodes = (each for each in ast.walk(home.tree) if isinstance(each, ast.Name) and each.id == name)
        return [each for each in nodes if not isinstance(each.ctx, ast.Load) and _is_of_module(home, each)]

    def _is_before(self, home: SourceFile, node: ast.expr) -> bool:
        """Return whether a statement of the module is over before the code runs that reads the variable."""
        loops = [each for each in home.above(node) if isinstance(each, ast.For | ast.While | Function | ast.ClassDef)]
        return not loops and (home is not self._source or node.lineno < self._first.lineno)

    def _made(self, home: SourceFile, name: str) -> Value:
        """Return what kind of value a name is bound to; what the module puts into it later counts, too."""
        stored = self._stores(home, name)
        kinds = BlockKinds(self._project, home, self._names, self.value)
        values = [value for each in stored for to, value in pairs(home.statement(each)) if to is each]
        if len(values) != 1:
            return UNKNOWN
        known = {name: kinds.of(values[0], {})}
        loops = [each for each in home.tree.body if isinstance(each, ast.For)]
        try:
            for statement in (each for each in [*home.tree.body, *loops] if self._fills(home, each, name)):
                kinds.run([statement], known)
        except Unkept:
            return UNKNOWN
        return known[name]

    def _fills(self, home: SourceFile, statement: ast.stmt, name: str) -> bool:
        """Return whether a statement of the module puts something into a variable, before it is read elsewhere."""
        if isinstance(statement, Function | ast.ClassDef | ast.If) or not self._is_over(home, statement):
            return False
        return any(
            isinstance(each, ast.Subscript) and not isinstance(each.ctx, ast.Load) and _root(each) == name
            for each in ast.walk(statement)
        ) or (isinstance(statement, ast.Expr) and ast.unparse(statement).startswith(f"{name}."))

    def _is_over(self, home: SourceFile, statement: ast.stmt) -> bool:
        return home is not self._source or statement.lineno < self._first.lineno

    def _shared(self, home: SourceFile, name: str, value: Value) -> Iterator[str]:
        """Yield what may change the object that a name stands for, from where the code can run."""
        if value.kind is ValueKind.ATOM:
            return
        filled = [each for each in home.tree.body if self._fills(home, each, name)]
        yield self._uses.change_of(home, name, value, home.tree, filled)
        for source in self._project.sources:
            imports = source.names.imports
            for other, dotted in imports.items():
                if dotted.rpartition(".")[2] == name and self._home(source, other)[0] is home and source is not home:
                    yield self._uses.change_of(source, other, value, source.tree, ())
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Attribute) and node.attr == name and source.names.dotted(node):
                    yield self._uses.change_at(source, node, value)
            stars = (each for each in ast.walk(source.tree) if isinstance(each, ast.ImportFrom))
            if source is not home and any(each.names[0].name == "*" for each in stars):
                yield f"{source.shown} imports all of a module"


def _is_of_module(source: SourceFile, node: ast.AST) -> bool:
    above = source.parents.get(node)
    while above is not None and not isinstance(above, Function | ast.Lambda | ast.ClassDef):
        if isinstance(above, ast.comprehension) and node in ast.walk(above.target):
            return False
        above = source.parents.get(above)
    return above is None


def _sets(source: SourceFile, call: ast.Call, name: str) -> bool:
    """Return whether `setattr` may bind a name of a module."""
    if len(call.args) < 2:
        return True
    to = call.args[1]
    return to.value == name if isinstance(to, ast.Constant) else bool(source.names.dotted(call.args[0]))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
