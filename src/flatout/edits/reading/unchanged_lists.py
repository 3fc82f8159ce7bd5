"""Lists that do not change while a loop runs: who holds them, and what may be done with them meanwhile.

A list that its function or constructor makes, and hands to nobody, can be changed only where it is named. Any other
one may be changed by whatever runs: the loop has to be quiet then.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from flatout.edits.reading.blocks import block_of, bound_as_words, stores
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.own_meanings import runs_meanwhile
from flatout.edits.reading.quiet_code import appends_to_own, is_builtin, loud
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["ListUse"]

_READING = {"count", "index", "copy"}  # methods of lists
_READERS = {
    "all", "any", "bool", "dict", "enumerate", "filter", "frozenset", "id", "isinstance", "iter", "len", "list", "map",
    "max", "min", "print", "range", "repr", "reversed", "set", "sorted", "str", "sum", "tuple", "type", "zip",
}  # fmt: skip
_READ_BY = (
    "collections.", "copy.", "itertools.", "json.", "math.", "numpy.", "pickle.", "random.choice",
    "random.sample", "statistics.", "torch.tensor", "torch.as_tensor",
)  # fmt: skip
_WRITERS = ("numpy.random.shuffle", "numpy.random.permuted", "numpy.put", "numpy.place")
_MAKERS = {"list", "sorted", "tuple"}
_MADE_BY = {"split", "splitlines", "rsplit", "readlines"}  # methods that give new lists
_FEW = 8  # items of a list that is gone through as fast
_CONSTRUCTORS = ("__init__", "__post_init__")
_DYNAMIC = ("getattr(", "setattr(", "__dict__", "__setattr__", "exec(", "globals(", "locals(", "vars(")
_Node = ast.Name | ast.Attribute
_Held = tuple[SourceFile, ast.expr]


class ListUse:
    """What a project does with what `name` or `self.name` stands for."""

    def __init__(self, project: Project, source: SourceFile, node: _Node) -> None:
        """Take one place that reads it."""
        self._project, self._source, self._node = project, source, node
        self._name = node.id if isinstance(node, ast.Name) else node.attr
        self._scope = source.scope(node)
        self.text = ast.unparse(node)

    # -- where it comes from ------------------------------------------------------------------------------------

    @cached_property
    def home(self) -> ast.AST | None:
        """The function or module that binds the name; None where an attribute is meant, or it is not seen."""
        if isinstance(self._node, ast.Attribute):
            return None
        for scope in (self._scope, *self._source.above(self._scope)):
            if isinstance(scope, Function | ast.Module) and self._binds(scope):
                return scope
        return None

    @cached_property
    def values(self) -> list[ast.expr | None]:
        """What it is bound to, None for what is not seen: an argument, the variable of a loop."""
        if isinstance(self._node, ast.Name):
            stored = [node for _, node in self._places if not isinstance(node.ctx, ast.Load)]
            given = [None] if isinstance(self.home, Function) and self._name in _arguments(self.home) else []
            return [*given, *(self._value(self._source, node) for node in stored if not self._is_added_to(node))]
        stores_of = [(source, node) for source, node in self._places if not isinstance(node.ctx, ast.Load)]
        return [self._value(source, node) for source, node in stores_of if not self._is_added_to(node)]

    @property
    def is_list(self) -> bool:
        """Whether it is a new list or tuple wherever it is bound."""
        return bool(self.values) and all(value is not None and self._makes_list(value) for value in self.values)

    @property
    def is_worth_it(self) -> bool:
        """Whether it may be a list or tuple of more than a few items."""
        few = [each for each in self.values if isinstance(each, ast.List | ast.Tuple) and 0 < len(each.elts) < _FEW]
        return not any(map(self._is_other, self.values)) and not (few and len(self.values) == 1)

    def _is_other(self, value: ast.expr | None) -> bool:
        """Return whether a value is a set, a dictionary or a string."""
        if isinstance(value, ast.Call):
            return is_builtin(self._source, value.func, ("set", "dict", "frozenset", "str"))
        if isinstance(value, ast.Constant):
            return value.value is not None
        return isinstance(value, ast.Set | ast.Dict | ast.SetComp | ast.DictComp | ast.JoinedStr)

    # -- whether it stays -----------------------------------------------------------------------------------------

    def changed_in(self, region: Sequence[ast.AST], start: ast.stmt) -> str:
        """Return why it may be another list, or have other items, while `region` runs, or not be there at its start."""
        inside = {node for each in region for node in ast.walk(each)}
        if isinstance(self._node, ast.Attribute):
            path, root = ast.unparse(self._node.value), _root(self._node)
            bound = {n.id for n in inside if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
            if root in bound | bound_as_words(region) or self._is_path_set(inside, path):
                return f"{path} is bound anew in the loop"
            if not self.values:
                return f"where {self.text} comes from is not seen"
            if self._name in self._project.functions or self._is_computed:
                return f"{self.text} is what a function gives"
        elif self.home is None or self._name in bound_as_words([self.home]):
            return f"where {self.text} comes from is not seen"
        found = set(self._changes(inside))
        if "here" in found:
            return f"{self.text} is changed in the loop"
        if not self._is_bound_at(start):
            return f"{self.text} may not be there before the loop"
        if found or not self.is_list or self._is_dynamic:
            threads = "another thread" if "Thread" in self._project.mentions or runs_meanwhile(self._project) else ""
            said = loud(self._project, self._source, region, self._is_known) or threads
            return f"{self.text} may be changed by {said}" if said else ""
        return ""

    def _changes(self, inside: set[ast.AST]) -> Iterator[str]:
        """Yield "here" for each change in the loop, "elsewhere" for those that other functions may make meanwhile."""
        for source, node in self._places:
            use = "changes" if not isinstance(node.ctx, ast.Load) else self._use(source, node)
            if use == "changes" and node in inside:
                yield "here"
            elif use == "held" or (use == "changes" and not self._is_over(source, node)):
                yield "elsewhere"

    def _is_over(self, source: SourceFile, node: _Node) -> bool:
        """Return whether a change outside of the loop cannot be made while it runs."""
        scope = source.scope(node)
        if isinstance(self._node, ast.Name):
            return scope is self.home
        return isinstance(scope, ast.ClassDef) or (isinstance(scope, Function) and scope.name in _CONSTRUCTORS)

    def _is_known(self, node: ast.AST) -> bool:
        return appends_to_own(self._source, node) or (isinstance(node, ast.expr) and ast.unparse(node) == self.text)

    @property
    def _is_dynamic(self) -> bool:
        if isinstance(self._node, ast.Name):
            imported = (a for s, n in self._project.nodes(ast.ImportFrom) if s is not self._source for a in n.names)
            hidden = any(each in self._project.mentions for each in ("exec(", "globals(", "locals("))
            return hidden or any(each.name in (self._name, "*") for each in imported)
        return any(each in self._project.mentions for each in _DYNAMIC)

    @property
    def _is_computed(self) -> bool:
        """Whether a class may have a property of that name."""
        of_classes = [(s, n) for s, n in self._places if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
        values = [self._value(*each) for each in of_classes]
        return any(isinstance(each, ast.Call) and not self._makes_list(each) for each in values)

    # -- places -----------------------------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> list[tuple[SourceFile, _Node]]:
        """All places that name it: a variable in its function, an attribute in the whole project."""
        if isinstance(self._node, ast.Attribute):
            named = self._project.nodes(ast.Attribute)
            in_classes = (each for each in self._project.nodes(ast.Name) if each[1].id == self._name)
            in_classes = (each for each in in_classes if isinstance(each[0].scope(each[1]), ast.ClassDef))
            return [*(each for each in named if each[1].attr == self._name), *in_classes]
        nodes = ast.walk(self.home) if self.home is not None else ()
        found = [node for node in nodes if isinstance(node, ast.Name) and node.id == self._name]
        return [(self._source, node) for node in found if self._is_same(node)]

    def _is_same(self, node: ast.Name) -> bool:
        """Return whether a name within its home stands for it, and for no variable of an inner function."""
        for above in self._source.above(node):
            if above is self.home:
                return True
            if isinstance(above, Function | ast.Lambda) and self._binds(above):
                return False
            generators = getattr(above, "generators", ())
            if generators and self._name in stores(each.target for each in generators):
                return False
        return False

    def _binds(self, scope: ast.AST) -> bool:
        if isinstance(scope, Function | ast.Lambda) and self._name in _arguments(scope):
            return True
        for node in ast.walk(scope):
            is_name = isinstance(node, ast.Name) and node.id == self._name and not isinstance(node.ctx, ast.Load)
            if is_name and self._source.scope(node) is scope and not self._is_of_comprehension(node):
                return not any(
                    isinstance(n, ast.Global | ast.Nonlocal) and self._name in n.names for n in ast.walk(scope)
                )
        return False

    def _is_of_comprehension(self, node: ast.AST) -> bool:
        above = next(each for each in self._source.above(node) if isinstance(each, ast.comprehension | ast.stmt))
        return isinstance(above, ast.comprehension) and node in ast.walk(above.target)

    def _value(self, source: SourceFile, node: _Node) -> ast.expr | None:
        statement = source.statement(node)
        return next((value for target, value in pairs(statement) if target is node), None)

    def _is_added_to(self, node: ast.expr) -> bool:
        return any(isinstance(source.parents.get(node), ast.AugAssign) for source in self._project.sources)

    def _makes_list(self, value: ast.expr) -> bool:
        if isinstance(value, ast.List | ast.ListComp | ast.Tuple):
            return True
        if isinstance(value, ast.BinOp):
            return self._makes_list(value.left) and isinstance(value.op, ast.Add | ast.Mult)
        if not isinstance(value, ast.Call):
            return False
        method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        plain = method in _MADE_BY and method not in self._project.functions
        return plain or is_builtin(self._source, value.func, _MAKERS)

    # -- one place --------------------------------------------------------------------------------------------------

    def _use(self, source: SourceFile, node: ast.expr) -> str:
        """Return what is done with it at a place that reads it: "" for reading, "changes", or "held" by others."""
        above = source.parents[node]
        if isinstance(above, ast.Attribute):
            called = isinstance(source.parents[above], ast.Call) and source.parents[above].func is above  # type: ignore[attr-defined]
            return "changes" if above.attr not in _READING and (called or not isinstance(above.ctx, ast.Load)) else ""
        if isinstance(above, ast.Subscript):
            return "changes" if above.value is node and not isinstance(above.ctx, ast.Load) else ""
        if isinstance(above, ast.keyword):
            above = source.parents[above]
        if isinstance(above, ast.Call):
            return self._given(source, above)
        if isinstance(above, ast.BoolOp | ast.IfExp):
            return self._use(source, above)
        if isinstance(above, ast.Return):
            return "" if self.home is not None and self.home is self._scope else "held"
        if isinstance(above, ast.Assign):
            return "" if all(isinstance(each, ast.Tuple | ast.List) for each in above.targets) else "held"
        reading = ast.Compare | ast.BinOp | ast.UnaryOp | ast.For | ast.comprehension | ast.Starred | ast.If | ast.While
        return "" if isinstance(above, reading | ast.FormattedValue | ast.Expr | ast.AugAssign | ast.Assert) else "held"

    def _given(self, source: SourceFile, call: ast.Call) -> str:
        dotted = source.names.dotted(call.func)
        if dotted.startswith(_READ_BY) and not dotted.startswith(_WRITERS):
            return ""
        return "" if is_builtin(source, call.func, _READERS) else "changes" if dotted else "held"

    # -- at the start -----------------------------------------------------------------------------------------------

    def _is_bound_at(self, start: ast.stmt) -> bool:
        """Return whether reading it before the loop gives no error that the loop might not have given."""
        if isinstance(start, ast.For) and self._is_walked(start.iter):
            return True
        if isinstance(self._node, ast.Attribute):
            return self._is_set_at(start)
        home = self.home
        if isinstance(home, Function) and self._name in _arguments(home):
            return not any(isinstance(node.ctx, ast.Del) for _, node in self._places)
        return self._is_bound_above(start if self._scope is home else self._function_in(home))

    def _is_walked(self, node: ast.expr) -> bool:
        """Return whether what a loop walks is it, whatever is around it: `enumerate(words)`, `range(len(words))`."""
        while ast.unparse(node) != self.text:
            if not isinstance(node, ast.Call) or not node.args or not is_builtin(self._source, node.func):
                return False
            node = node.args[0]
        return True

    def _is_set_at(self, start: ast.stmt) -> bool:
        """Return whether `self.name` is set by the class, by its constructor, or above in this function."""
        assert isinstance(self._node, ast.Attribute)
        if ast.unparse(self._node.value) != "self" or any(isinstance(node.ctx, ast.Del) for _, node in self._places):
            return False
        own = next((each for each in self._source.above(self._node) if isinstance(each, ast.ClassDef)), None)
        body = own.body if own is not None else []
        makers = [each for each in body if isinstance(each, Function) and each.name in _CONSTRUCTORS]
        inside = self._scope in makers
        return self._is_bound_above(start) or (not inside and any(map(self._sets, [*body, *_bodies(makers)])))

    def _sets(self, statement: ast.stmt) -> bool:
        targets = [ast.unparse(target) for target, _ in pairs(statement)]
        return self.text in targets or (isinstance(self._node, ast.Attribute) and self._name in targets)

    def _is_bound_above(self, statement: ast.stmt | None) -> bool:
        """Return whether a statement above this one, in its block or one around it, binds it whenever this runs."""
        node: ast.AST | None = statement
        while isinstance(node, ast.stmt) and not (node is not statement and isinstance(node, Function | ast.ClassDef)):
            block = block_of(self._source, node)
            if any(self.text in [ast.unparse(t) for t, _ in pairs(each)] for each in block[: block.index(node)]):
                return True
            node = self._source.parents[node]
            node = self._source.parents[node] if isinstance(node, ast.ExceptHandler | ast.match_case) else node
        return False

    def _function_in(self, home: ast.AST | None) -> ast.stmt | None:
        """Return the function that the loop stands in as `home` defines it."""
        within = [each for each in (self._scope, *self._source.above(self._scope)) if isinstance(each, ast.stmt)]
        return next((each for each in within if self._source.scope(each) is home), None)

    def _is_path_set(self, inside: set[ast.AST], path: str) -> bool:
        attributes = (node for node in inside if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load))
        return any(ast.unparse(node) == path or path.startswith(f"{ast.unparse(node)}.") for node in attributes)


def _arguments(function: ast.AST) -> set[str]:
    given = function.args if isinstance(function, Function | ast.Lambda) else None
    return {each.arg for each in ast.walk(given) if isinstance(each, ast.arg)} if given is not None else set()


def _bodies(functions: Sequence[Function]) -> Iterator[ast.stmt]:
    for each in functions:
        yield from each.body


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
