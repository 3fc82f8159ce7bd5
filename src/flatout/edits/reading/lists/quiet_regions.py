"""Code between whose steps nothing of anybody else's runs, as long as some values are plain numbers and strings.

A list that others hold stays as it is while such code runs. What counts is a short grammar of Python: all else is not
quiet. It says of which values the types have to be tested before; where they are others, nothing is known.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from flatout.edits.reading.blocks import bound_as_words, stores
from flatout.edits.reading.lists.hidden_access import is_of_python
from flatout.edits.reading.lists.own_lists import OwnList, is_bound_before, is_read_at_once
from flatout.edits.reading.lists.plain_attributes import is_plain_attribute
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["QuietRegion"]

_OF_VALUES = ("abs", "bool", "chr", "float", "int", "max", "min", "ord", "round", "str")
_OF_LISTS = ("len", "max", "min", "sum")
_ORDERS = ("list", "reversed", "set", "sorted", "tuple")  # give the items of a list, in this or that order
_DRAWS = ("random.randint", "random.random", "random.randrange", "random.uniform")
_AT_ONCE = ("all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple")
_LOOKUPS = ("count", "index")
_LIBRARIES = ("math.", "numpy.", "random.", "torch.")
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
# Others that may run at any time: a loop that waits for them ends by what they change.
_OTHERS = re.compile(r"(?<!num_)(?<!interop_)[Tt]hread|signal|asyncio|weakref|finalize|__del__|greenlet|gevent")


class QuietRegion:
    """A loop, or a statement with a comprehension: whether it is quiet, and on which conditions."""

    def __init__(self, project: Project, source: SourceFile, function: Function, start: ast.stmt) -> None:
        """Take the statement that is the loop, or that has the comprehension."""
        self._project, self._source, self._function, self._start = project, source, function, start
        self._lists: dict[str, ast.expr] = {}
        self._values: dict[str, ast.expr] = {}
        self._added_to: set[str] = set()

    @cached_property
    def is_quiet(self) -> bool:
        """Whether it is, where `lists` are lists or tuples of plain values, and `values` are plain."""
        start = self._start
        if isinstance(start, ast.For | ast.While):
            if isinstance(start, ast.While) and _OTHERS.search(self._project.mentions):
                return False
            found = self._is_statement(start) and all(map(self._is_plain_name, self._bound))
        elif isinstance(start, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            found = start.value is not None and self._is_outer(start.value)
        else:
            found = isinstance(start, ast.If) and self._is_outer(start.test)
        return found and not self._added_to & {*self._lists} and all(map(self._is_there, self._lists.values()))

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists that have to be lists of plain values, as they are named."""
        return tuple(self._lists) if self.is_quiet else ()

    @property
    def values(self) -> tuple[str, ...]:
        """The variables and attributes that have to be plain values."""
        return tuple(self._values) if self.is_quiet else ()

    # -- statements -----------------------------------------------------------------------------------------------

    def _is_statement(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.For):
            head = self._is_walked(node.iter, node.target)
            return head and not node.orelse and all(map(self._is_statement, node.body))
        if isinstance(node, ast.While | ast.If):
            return self._is_plain(node.test) and all(map(self._is_statement, [*node.body, *node.orelse]))
        if isinstance(node, ast.Assign):
            targets = [isinstance(each, ast.Name) for each in node.targets]
            return all(targets) and self._is_plain(node.value)
        if isinstance(node, ast.AugAssign):
            target = node.target
            return isinstance(target, ast.Name) and self._is_plain_name(target) and self._is_plain(node.value)
        if isinstance(node, ast.Expr):
            return self._is_added(node.value)
        return isinstance(node, ast.Pass | ast.Break | ast.Continue)

    def _is_added(self, node: ast.expr) -> bool:
        """Return whether a plain value is added to a list of the function's own."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"):
            return False
        held = node.func.value
        if not isinstance(held, ast.Name) or len(node.args) != 1 or node.keywords or not self._is_own(held):
            return False
        self._added_to.add(held.id)
        return self._is_plain(node.args[0])

    def _is_own(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name):
            return False
        own = OwnList(self._source, self._function, node.id)
        return not isinstance(own.value, ast.Tuple) and not own.leaves(self._start)

    # -- expressions ----------------------------------------------------------------------------------------------

    def _is_outer(self, node: ast.expr) -> bool:
        """Return whether all is quiet but a call that is given the result: `torch.tensor([...])`."""
        if self._is_closed(node):
            return True
        if not isinstance(node, ast.Call) or not self._is_named(node.func):
            return False
        if any(each.arg is None for each in node.keywords):
            return False
        given = [*node.args, *(each.value for each in node.keywords)]
        inner = [each for each in given if not self._is_named(each)]
        return len(inner) == 1 and self._is_outer(inner[0])

    def _is_named(self, node: ast.expr) -> bool:
        """Return whether reading an expression runs no code: a constant, a variable, what a library has."""
        if isinstance(node, ast.Name | ast.Constant):
            return True
        own = any(f"{each.path.stem}." in _LIBRARIES for each in self._project.sources)
        return not own and self._source.names.dotted(node).startswith(_LIBRARIES)

    def _is_closed(self, node: ast.expr) -> bool:
        """Return whether an expression has plain values, or collections of them, and runs nothing of others'."""
        if isinstance(node, _Comprehension):
            is_later = isinstance(node, ast.GeneratorExp) and not is_read_at_once(self._source, node)
            return not is_later and self._is_comprehension(node)
        if isinstance(node, ast.Tuple | ast.List):
            return all(map(self._is_closed, node.elts))
        if isinstance(node, ast.Call) and self._calls(node, _AT_ONCE) and len(node.args) == 1:
            return not node.keywords and (isinstance(node.args[0], _Comprehension) and self._is_closed(node.args[0]))
        return self._is_plain(node)

    def _is_comprehension(self, node: ast.AST) -> bool:
        assert isinstance(node, _Comprehension)
        for each in node.generators:
            if each.is_async or not self._is_walked(each.iter, each.target) or not all(map(self._is_plain, each.ifs)):
                return False
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return all(map(self._is_plain, results))

    def _is_walked(self, over: ast.expr, target: ast.expr) -> bool:
        """Return whether a loop gives its variables plain values: the items of a list, numbers of a range."""
        if isinstance(over, ast.Call) and self._calls(over, ("enumerate",)) and len(over.args) == 1:
            names = isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts)
            return names and len(target.elts) == 2 and self._is_in_order(over.args[0])  # type: ignore[attr-defined]
        return isinstance(target, ast.Name) and self._is_in_order(over)

    def _is_in_order(self, over: ast.expr) -> bool:
        while isinstance(over, ast.Call) and len(over.args) == 1 and self._calls(over, _ORDERS):
            over = over.args[0]
        if isinstance(over, ast.Call):
            return self._calls(over, ("range",)) and all(map(self._is_plain, over.args))
        return self._is_list(over)

    def _is_plain(self, node: ast.expr) -> bool:
        """Return whether the value of an expression is plain, and computing it runs nothing of others'."""
        if isinstance(node, ast.Constant):
            return node.value is None or type(node.value) in (bool, float, int, str)
        if isinstance(node, ast.Name):
            return self._is_plain_name(node)
        if isinstance(node, ast.Attribute):
            return self._is_attribute(node) and self._keep(self._values, node)
        if isinstance(node, ast.Compare):
            return self._is_compared(node)
        if isinstance(node, ast.Call):
            return self._is_plain_call(node)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice | ast.Tuple):
            return self._is_list(node.value) and self._is_plain(node.slice)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.IfExp):
            return all(self._is_plain(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
        return isinstance(node, ast.Tuple) and all(map(self._is_plain, node.elts))

    def _is_compared(self, node: ast.Compare) -> bool:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            return self._is_plain(node.left) and self._is_list(node.comparators[0])
        return all(map(self._is_plain, [node.left, *node.comparators]))

    def _is_plain_call(self, node: ast.Call) -> bool:
        if node.keywords:
            return False
        if self._source.names.dotted(node.func) in _DRAWS or self._calls(node, _OF_VALUES):
            return all(map(self._is_plain, node.args)) or (self._calls(node, _OF_LISTS) and self._is_of_list(node))
        if self._calls(node, _OF_LISTS):
            return self._is_of_list(node)
        is_lookup = isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKUPS
        return is_lookup and self._is_list(node.func.value) and all(map(self._is_plain, node.args))  # type: ignore[attr-defined]

    def _is_of_list(self, node: ast.Call) -> bool:
        held = node.args[0] if len(node.args) == 1 else node
        if self._calls(node, ("len",)) and self._is_own(held):
            return True
        return self._is_list(held) or (held is not node and self._is_plain(held))

    def _calls(self, node: ast.Call, names: Sequence[str]) -> bool:
        known = isinstance(node.func, ast.Name) and node.func.id in names and not node.keywords
        return known and is_of_python(self._source, node.func.id)  # type: ignore[attr-defined]

    # -- names ----------------------------------------------------------------------------------------------------

    def _is_list(self, node: ast.expr) -> bool:
        """Return whether an expression names what stays bound; that it is a list is tested."""
        if isinstance(node, ast.Name):
            of_method = isinstance(self._source.parents[self._function], ast.ClassDef) and node.id == self._first
            stays = not of_method and node.id not in stores([self._start]) and self._comprehension_of(node) is None
            return stays and self._keep(self._lists, node)
        return isinstance(node, ast.Attribute) and self._is_attribute(node) and self._keep(self._lists, node)

    def _is_plain_name(self, node: ast.Name) -> bool:
        if self._comprehension_of(node) is not None:
            return True
        if node.id in self._elsewhere:
            return False
        stored = [each for each in self._stored if each.id == node.id]
        inside = {*ast.walk(self._start)}
        if not isinstance(self._start, ast.For | ast.While) and any(each in inside for each in stored):
            return False
        if stored and node.id not in self._given and all(each in inside for each in stored):
            return True  # each place that binds it gives it a plain value
        return self._is_there(node) and self._keep(self._values, node)

    def _is_there(self, node: ast.expr) -> bool:
        """Return whether a list or value can be read before the loop without an error that the loop might not give."""
        if isinstance(node, ast.Attribute) or self._is_read_first(node):
            return True
        assert isinstance(node, ast.Name)
        if node.id in self._elsewhere:
            return False
        if node.id in self._given:
            return True
        if any(each.id == node.id for each in self._stored):
            return is_bound_before(self._source, self._start, node.id, self._function)
        nested = any(isinstance(each, Function | ast.Lambda) for each in self._source.above(self._function))
        return not nested and is_bound_before(self._source, self._start, node.id, None)

    def _is_read_first(self, node: ast.expr) -> bool:
        """Return whether the loop reads it before anything else."""
        return isinstance(self._start, ast.For) and self._start.iter is node

    def _is_attribute(self, node: ast.expr) -> bool:
        return is_plain_attribute(self._project, self._source, node, self._function)

    def _keep(self, where: dict[str, ast.expr], node: ast.expr) -> bool:
        where.setdefault(ast.unparse(node), node)
        return True

    @cached_property
    def _elsewhere(self) -> set[str]:
        """Names that are deleted somewhere, declared as another scope's, or bound by no name of their own."""
        nodes = [*ast.walk(self._source.tree)]
        found = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del)}
        for each in nodes:
            found |= {*each.names} if isinstance(each, ast.Global | ast.Nonlocal) else set()
        return found | bound_as_words([self._source.tree])

    @property
    def _bound(self) -> list[ast.Name]:
        """The variables that the loop binds: code of others would run where it drops an object of theirs."""
        inside = {*ast.walk(self._start)}
        return [each for each in self._stored if each in inside]

    @property
    def _first(self) -> str:
        """The first argument: of a method, that is an object."""
        given = [*self._function.args.posonlyargs, *self._function.args.args]
        return given[0].arg if given else ""

    @cached_property
    def _given(self) -> set[str]:
        return {each.arg for each in ast.walk(self._function.args) if isinstance(each, ast.arg)}

    @cached_property
    def _stored(self) -> list[ast.Name]:
        """Where variables of the function are bound, those of comprehensions left out."""
        found = (each for each in ast.walk(self._function) if isinstance(each, ast.Name))
        found = (each for each in found if not isinstance(each.ctx, ast.Load))
        return [each for each in found if self._comprehension_of(each) is None]

    def _comprehension_of(self, node: ast.Name) -> ast.AST | None:
        """Return the comprehension whose variable a name is."""
        below: ast.AST = node
        for above in self._around(node):
            if isinstance(above, _Comprehension):
                first = above.generators[0]
                outside = below is first and node in ast.walk(first.iter)
                if not outside and node.id in stores(each.target for each in above.generators):
                    return above
            below = above
        return None

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        for above in self._source.above(node):
            if above is self._function:
                return
            yield above
