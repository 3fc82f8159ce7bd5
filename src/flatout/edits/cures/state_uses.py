"""What a function does with a dictionary of weights, from the line that makes it to the last one that reads it."""

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from flatout.edits.reading.blocks import block_of, bound_as_words, loads, stores
from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import COMPUTING, SAME_VALUES, is_builtin, is_computing, loud
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.state_dicts import bound_to, loads_it, state_of, unlike_module

__all__ = ["StateUses"]

_OF_TENSORS = {"dtype", "shape", "device", "ndim", "is_sparse", "requires_grad", "is_cuda", "layout"}
_OF_STRINGS = {"startswith", "endswith", "split", "replace", "lower", "strip"}
_WALKS = {"enumerate", "len", "list", "sorted", "zip"}
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def _in_order(block: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what is done one after the other: of `with` and `if`, what stands in them."""
    for each in block:
        if isinstance(each, ast.With):
            yield from each.items
            yield from _in_order(each.body)
        elif isinstance(each, ast.If):
            yield each.test
            yield from _in_order([*each.body, *each.orelse])
        else:
            yield each


class StateUses:
    """What a function does with a copy, from the line that makes it to the last one that reads it."""

    def __init__(self, project: Project, source: SourceFile, statement: ast.stmt, model: ast.expr, name: str) -> None:
        """Take the statement that binds `name` to a copy of the weights of `model`."""
        self._project, self._source, self._name, self._model = project, source, name, model
        self._scope = source.scope(statement)
        block = block_of(source, statement)
        self._behind = list(_in_order(block[block.index(statement) + 1 :]))
        self._inside = {node for each in self._behind for node in ast.walk(each) if source.scope(node) is self._scope}
        self._known = {name}  # names of the copy and its items
        self._keys: dict[str, tuple[str, ast.AST]] = {}  # of names of items: that of the key, and the loop
        self._seen: set[tuple[str, ast.AST | None]] = set()
        self._computes = False  # with each of its items, which are numbers then, and not those of an optimizer

    def needed(self) -> str:
        """Return why the copy is needed, "" where it is not."""
        name = self._name
        for node in ast.walk(self._source.tree):
            if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
                return f"{name} is a name of other functions, too"
        otherwise = name in bound_as_words([self._scope]) or not isinstance(self._scope, Function | ast.Module)
        if otherwise or len(self._named(name, ast.Store, ast.Del)) != 1:
            return f"{name} is bound more than once"
        reads = self._named(name, ast.Load)
        if not reads or not self._inside.issuperset(reads):
            return f"{name} is read outside of the block that makes it"
        for node in reads:
            if not self._is_read(node):
                line = self._source.lines[node.lineno - 1].partition("#")[0].strip()
                return f"{name} may be kept, handed on or written into: {line}"
        first = next((at for at, each in enumerate(self._behind) if any(self._loaded([each]))), len(self._behind))
        if (self._known - {name}) & loads(self._behind[first:]):
            return f"an item of {name} is read after it was loaded"
        last = max(at for at, each in enumerate(self._behind) if self._known & loads([each]))
        between = self._behind[: last + 1]
        for model in (self._model, *self._loaded(between)):
            reason = unlike_module(self._project, self._source, model, surely=not self._computes)
            if reason:
                return reason
        found = loud(self._project, self._source, between, partial(self._is_known, between))
        return f"{found} may change the weights before {name} is read for the last time" if found else ""

    def _named(self, name: str, *kinds: type[ast.expr_context], within: ast.AST | None = None) -> list[ast.Name]:
        """Return the nodes of a name in the scope, or of one that a comprehension has for itself."""
        found = [node for node in ast.walk(within or self._scope) if isinstance(node, ast.Name) and node.id == name]
        return [node for node in found if isinstance(node.ctx, kinds) and self._binder(node) is within]

    def _binder(self, node: ast.Name) -> ast.AST | None:
        """Return the comprehension whose variable a name is, None where it is one of the function."""
        for above in self._source.above(node):
            if isinstance(above, _Comprehension) and node.id in stores(each.target for each in above.generators):
                return above
        return None

    # -- the dictionary -----------------------------------------------------------------------------------------

    def _is_read(self, node: ast.Name) -> bool:
        """Return whether a place that names the dictionary reads items, binds them anew, or loads them."""
        above = self._source.parents[node]
        if isinstance(above, ast.Subscript) and above.value is node:
            around = self._source.parents[above]
            if isinstance(above.ctx, ast.Load):
                return self._is_value(above)
            return isinstance(above.ctx, ast.Del) or (isinstance(around, ast.Assign) and above in around.targets)
        if isinstance(above, ast.Attribute):
            call = self._source.parents[above]
            is_call = isinstance(call, ast.Call) and call.func is above
            return is_call and (above.attr == "keys" or self._is_walked(call, above.attr))  # type: ignore[arg-type]
        if isinstance(above, ast.Call) and node in above.args:
            return loads_it(above, node) or is_builtin(self._source, above.func, _WALKS)
        is_test = isinstance(above, ast.Compare) and isinstance(above.ops[-1], ast.In | ast.NotIn)
        return is_test or (isinstance(above, ast.For | ast.comprehension) and above.iter is node)

    def _is_walked(self, call: ast.expr, method: str) -> bool:
        """Return whether items or values are walked by a loop that only reads them."""
        above, places = self._source.parents[call], list[int]()
        while isinstance(above, ast.Call) and is_builtin(self._source, above.func, ("zip", "enumerate")):
            places.append(above.args.index(call) + (name_called(above) == "enumerate"))
            call, above = above, self._source.parents[above]
        if not isinstance(above, ast.For | ast.comprehension) or above.iter is not call:
            return False
        target = above.target
        for at in reversed(places):
            if not isinstance(target, ast.Tuple) or at >= len(target.elts):
                return False
            target = target.elts[at]
        if method == "items" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            key, target = target.elts
            self._keys[ast.unparse(target)] = (ast.unparse(key), above)
        names = {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
        within = self._source.parents[above] if isinstance(above, ast.comprehension) else None
        return method in ("items", "values") and all(self._is_value_name(each, within) for each in names)

    # -- its items ----------------------------------------------------------------------------------------------

    def _is_value_name(self, name: str, within: ast.AST | None = None) -> bool:
        """Return whether a name that an item is bound to is only read; `within`: a comprehension's variable."""
        if (name, within) in self._seen:
            return True
        self._seen.add((name, within))
        self._known.add(name)
        stored = [self._source.parents[each] for each in self._named(name, ast.Store, ast.Del, within=within)]
        reads = self._named(name, ast.Load, within=within)
        if name in bound_as_words([self._scope]) or any(isinstance(each, ast.AugAssign) for each in stored):
            return False
        if not self._inside.issuperset(reads):
            return False
        return all(map(self._is_value, reads))

    def _is_value(self, node: ast.expr) -> bool:
        """Return whether a place that an item stands in only reads it, or has it loaded."""
        above = self._source.parents[node]
        if isinstance(above, ast.BinOp | ast.UnaryOp):
            self._computes |= self._is_each(node)
            return True
        if isinstance(above, ast.Subscript):
            return above.slice is node or (isinstance(above.ctx, ast.Load) and self._is_value(above))
        if isinstance(above, ast.Attribute):
            return self._is_method(above)
        if isinstance(above, ast.List | ast.Tuple | ast.IfExp):
            return self._is_value(above)
        if isinstance(above, ast.Call) and node in above.args:
            return self._is_argument(above)
        if isinstance(above, ast.Assign) and len(above.targets) == 1:
            return self._is_bound(above.targets[0], node)
        reading = isinstance(above, ast.Compare | ast.BoolOp | ast.FormattedValue | ast.If)
        return reading or (isinstance(above, ast.AugAssign) and above.value is node)

    def _is_method(self, method: ast.Attribute) -> bool:
        call = self._source.parents[method]
        if not isinstance(call, ast.Call) or call.func is not method:
            self._computes |= method.attr in _OF_TENSORS and self._is_each(method)
            return method.attr in _OF_TENSORS
        if method.attr in COMPUTING or method.attr in _OF_STRINGS:
            self._computes |= method.attr in COMPUTING and self._is_each(method)
            return is_computing(self._source, call)
        return method.attr in SAME_VALUES and self._is_value(call)

    def _is_argument(self, call: ast.Call) -> bool:
        name = name_called(call)
        if self._source.names.dotted(call.func) == f"torch.{name}" and name in COMPUTING:
            self._computes |= self._is_each(call)
            return is_computing(self._source, call)
        if isinstance(call.func, ast.Attribute) and name in COMPUTING:
            return is_computing(self._source, call)
        return is_builtin(self._source, call.func, ("isinstance", "float", "int", "print", "type", "len"))

    def _is_bound(self, target: ast.expr, value: ast.expr) -> bool:
        """Return whether an item is bound to another name that only reads it, or put back where it was."""
        if isinstance(target, ast.Name):
            return self._is_value_name(target.id)
        if not isinstance(target, ast.Subscript) or not _is_name(target.value, self._name):
            return False
        key, loop = self._keys.get(ast.unparse(value), ("", None))
        if not isinstance(loop, ast.For) or loop not in self._source.above(target):
            return False
        return key == ast.unparse(target.slice) and key not in stores(loop.body)

    def _is_each(self, node: ast.AST) -> bool:
        """Return whether something is done in each turn of a loop, with no item that is named by itself."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return False
        for above in self._source.above(node):
            if isinstance(above, ast.For):
                return True
            if isinstance(above, ast.If | ast.IfExp) and node is not above.test:
                return False
            if isinstance(above, ast.Try | ast.BoolOp | ast.While | ast.comprehension | Function):
                return False
            node = above
        return False

    # -- what else is done ----------------------------------------------------------------------------------------

    def _is_known(self, between: Sequence[ast.AST], node: ast.AST) -> bool:
        """Return whether something changes no weight: the dictionary itself, and its load, which is in no loop."""
        if isinstance(node, ast.Name):
            return node.id in self._dictionaries
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            return isinstance(node.value, ast.Name) and node.value.id in self._dictionaries
        if not isinstance(node, ast.Call) or not (node.args and loads_it(node, node.args[0])):
            return False
        loops = [each for each in self._source.above(node) if isinstance(each, ast.For | ast.While)]
        return _is_name(node.args[0], self._name) and not any(each in between for each in loops)

    @cached_property
    def _dictionaries(self) -> set[str]:
        """Names that the scope binds to state dicts alone, copied or not."""
        states = {self._name}
        for node in self._inside | {*ast.walk(self._scope)}:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                value = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
                name = bound_to(node, node.value)
                if name and state_of(value) is not None and len(self._named(name, ast.Store, ast.Del)) == 1:
                    states.add(name)
        return states

    def _loaded(self, between: Sequence[ast.AST]) -> Iterator[ast.expr]:
        """Yield the models that it is loaded into."""
        for node in (inner for each in between for inner in ast.walk(each)):
            is_call = isinstance(node, ast.Call) and node.args and _is_name(node.args[0], self._name)
            if is_call and loads_it(node, node.args[0]):  # type: ignore[attr-defined]
                yield node.func.value  # type: ignore[attr-defined]


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
