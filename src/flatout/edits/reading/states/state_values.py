"""What the names of a function stand for where it handles state dicts: dictionaries, their keys, and tensors.

A name has a kind only where everything that binds it, anywhere in the function, gives it that kind.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from flatout.edits.reading.blocks import bound_as_words
from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.states.state_dicts import bound_to, cloned_value, is_deepcopy, loads_it, state_of

__all__ = ["ASKED", "EXACT", "FRESH", "SAME", "WALKS", "StateValues"]

FRESH = frozenset({  # functions and methods of torch's that make a new tensor, element by element
    "abs", "add", "clamp", "clone", "cos", "div", "divide", "eq", "exp", "full_like", "isfinite", "isnan", "lerp",
    "log", "maximum", "minimum", "mul", "multiply", "ne", "ones_like", "pow", "rsqrt", "sign", "sin", "sqrt", "square",
    "sub", "subtract", "tanh", "true_divide", "zeros_like", "where",
})  # fmt: skip
EXACT = frozenset({  # those that give the same bits whether elements lie side by side or not
    "abs", "clone", "div", "divide", "eq", "full_like", "isfinite", "isnan", "maximum", "minimum", "mul", "multiply",
    "ne", "ones_like", "sign", "sqrt", "true_divide", "zeros_like",
})  # fmt: skip
SAME = frozenset({  # methods that may give back what they are called on, or a part of it
    "detach", "float", "double", "half", "bfloat16", "to", "type", "type_as", "cpu", "cuda", "view", "view_as",
    "ravel", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "long", "int",
})  # fmt: skip
ASKED = frozenset({  # methods that tell something of a tensor
    "is_floating_point", "is_complex", "numel", "dim", "size", "element_size", "item", "tolist",
})  # fmt: skip
WALKS = ("enumerate", "len", "list", "sorted", "zip")
_NAMED = ("keys", "values", "items")
_DEPTH = 3


class _Bound(NamedTuple):
    """A place that binds a name: to a value, or as the target of a loop, to one of these kinds."""

    value: ast.expr | None
    kind: str = ""


class StateValues:
    """What one function or script binds its names to.

    Attributes:
        dictionaries: names of state dicts, with what they are bound to; `raw`: those that are no copies.
        keys: names of keys; `tensors`: names of items, and of what is computed from them.
    """

    def __init__(self, project: Project, source: SourceFile, scope: ast.AST) -> None:
        """Read a scope."""
        self._project, self._source, self._scope = project, source, scope
        nodes = [node for node in ast.walk(scope) if isinstance(node, ast.Name)]
        self._loads = [node for node in nodes if isinstance(node.ctx, ast.Load)]
        self._stores = [node for node in nodes if not isinstance(node.ctx, ast.Load) and source.scope(node) is scope]
        names = {node.id for node in self._stores}
        others = bound_as_words([scope]) | _arguments(scope) | _of_several(source)
        made = {name: value for name in names - others if (value := self._state(name)) is not None}
        self.raw = {name for name, value in made.items() if state_of(value) is not None}  # not copied
        self.dictionaries = made
        self.keys = self.tensors = names - others
        size = -1
        while size != len(self.dictionaries) + len(self.keys) + len(self.tensors):
            size = len(self.dictionaries) + len(self.keys) + len(self.tensors)
            self.dictionaries = {name: made[name] for name in self.dictionaries if self._is_kept_so(name)}
            self.keys = {name for name in self.keys if self._all(name, "key")}
            self.tensors = {name for name in self.tensors if self._all(name, "item")}

    # -- expressions --------------------------------------------------------------------------------------------

    def is_dictionary(self, node: ast.expr) -> bool:
        """Return whether an expression is a state dict."""
        return (isinstance(node, ast.Name) and node.id in self.dictionaries) or state_of(node) is not None

    def is_key(self, node: ast.expr) -> bool:
        """Return whether an expression is a string, or a list of parts of one."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str)
        if isinstance(node, ast.Subscript):
            return self.is_key(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self.is_key(node.func.value)
        return isinstance(node, ast.Name) and node.id in self.keys

    def is_tensor(self, node: ast.expr) -> bool:
        """Return whether an expression is an item of a state dict, or computed from one."""
        if isinstance(node, ast.Name):
            return node.id in self.tensors
        if isinstance(node, ast.Subscript):
            return self.is_dictionary(node.value) or self.is_tensor(node.value)
        if isinstance(node, ast.BinOp):
            return self.is_fresh(node)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.USub) and self.is_tensor(node.operand)
        if isinstance(node, ast.IfExp):
            return self.is_tensor(node.body) and self.is_tensor(node.orelse)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        return self.is_function(node) or (node.func.attr in FRESH | SAME and self.is_tensor(node.func.value))

    def is_function(self, call: ast.Call) -> bool:
        """Return whether a call is one of a function of torch's that makes a new tensor."""
        name = name_called(call)
        return name in FRESH and self._source.names.dotted(call.func) == f"torch.{name}"

    def is_fresh(self, node: ast.expr, depth: int = _DEPTH) -> bool:
        """Return whether an expression is a tensor that nobody else holds; a name is followed so many times."""
        if isinstance(node, ast.BinOp):
            known = self.is_tensor(node.left) or self.is_tensor(node.right)
            return known and not isinstance(node.op, ast.MatMult)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.USub) and self.is_tensor(node.operand)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method, on = node.func.attr, node.func.value
            if self.is_function(node) or (method in FRESH and self.is_tensor(on)):
                return True
            return method in SAME and self.is_fresh(on, depth)
        if isinstance(node, ast.Name) and node.id in self.tensors and depth:
            values = [each.value for each in self._bound(node.id)]
            return all(each is not None and self.is_fresh(each, depth - 1) for each in values)
        return False

    # -- what binds names ---------------------------------------------------------------------------------------

    def _state(self, name: str) -> ast.expr | None:
        """Return the state dict, or the copy of one, that a name is bound to, once."""
        stored = [each for each in self._stores if each.id == name]
        around = self._source.parents[stored[0]]
        if len(stored) != 1 or not isinstance(around, ast.Assign | ast.AnnAssign) or around.value is None:
            return None
        value, source = around.value, self._source
        if bound_to(around, value) != name:
            return None
        copied = value.args[0] if isinstance(value, ast.Call) and is_deepcopy(source, value) else value
        return value if state_of(copied) is not None or cloned_value(source, value) is not None else None

    def _is_kept_so(self, name: str) -> bool:
        """Return whether a dictionary is only read, loaded, or has tensors bound to its keys."""
        return all(self._is_known_use(each) for each in self._loads if each.id == name)

    def _is_known_use(self, node: ast.Name) -> bool:
        above = self._source.parents[node]
        if isinstance(above, ast.Subscript) and above.value is node:
            around = self._source.parents[above]
            is_bound = isinstance(around, ast.Assign) and above in around.targets and self.is_tensor(around.value)
            return is_bound or isinstance(above.ctx, ast.Load | ast.Del)
        if isinstance(above, ast.Attribute):
            call = self._source.parents[above]
            return above.attr in _NAMED and isinstance(call, ast.Call) and call.func is above and not call.args
        if isinstance(above, ast.Call) and node in above.args:
            is_copied = is_deepcopy(self._source, above)
            return is_copied or loads_it(above, node) or is_builtin(self._source, above.func, WALKS)
        if isinstance(above, ast.Compare):
            return isinstance(above.ops[-1], ast.In | ast.NotIn) and above.comparators[-1] is node
        return isinstance(above, ast.For | ast.comprehension) and above.iter is node

    def _all(self, name: str, kind: str) -> bool:
        """Return whether all that binds a name gives it a kind."""
        bound = list(self._bound(name))
        if kind == "key":
            return all(each.kind == "key" for each in bound)
        return all(each.kind == "item" or (each.value is not None and self.is_tensor(each.value)) for each in bound)

    def _bound(self, name: str) -> Iterator[_Bound]:
        yield from (self._binding(node) for node in self._stores if node.id == name)

    def _binding(self, node: ast.Name) -> _Bound:
        above = self._source.parents[node]
        if isinstance(above, ast.Assign) and len(above.targets) == 1:
            return _Bound(above.value)
        for loop in (above, *self._source.above(above)):
            if isinstance(loop, ast.For | ast.comprehension):
                return _Bound(None, dict(self.walked(loop.target, loop.iter)).get(node, ""))
            if not isinstance(loop, ast.Tuple):
                break
        return _Bound(None)

    def walked(self, target: ast.expr, over: ast.expr) -> Iterator[tuple[ast.expr, str]]:
        """Yield the names that a loop binds, each with its kind: "key", "item" or "number"; nothing if it is not known.

        What is walked is a state dict, its keys, values or items, a range, or several of them side by side.
        """
        called = name_called(over) if isinstance(over, ast.Call) else ""
        if self.is_dictionary(over):
            yield target, "key"
        elif isinstance(over, ast.Call) and not over.keywords and isinstance(over.func, ast.Attribute):
            if over.args or called not in _NAMED or not self.is_dictionary(over.func.value):
                return
            if called == "items":
                if isinstance(target, ast.Tuple) and len(target.elts) == 2:
                    yield from zip(target.elts, ("key", "item"), strict=True)
            else:
                yield target, "key" if called == "keys" else "item"
        elif isinstance(over, ast.Call) and not over.keywords and is_builtin(self._source, over.func):
            yield from self._walked_by(called, target, over.args)

    def _walked_by(self, called: str, target: ast.expr, given: list[ast.expr]) -> Iterator[tuple[ast.expr, str]]:
        """Yield what a loop binds over `zip(...)`, `enumerate(...)`, `range(...)`, or a list of something."""
        if called == "range":
            yield target, "number"
        elif called in ("list", "sorted") and len(given) == 1:
            yield from self.walked(target, given[0])
        elif isinstance(target, ast.Tuple) and called == "enumerate" and len(target.elts) == 2 and len(given) == 1:
            yield target.elts[0], "number"
            yield from self.walked(target.elts[1], given[0])
        elif isinstance(target, ast.Tuple) and called == "zip" and len(target.elts) == len(given):
            for one, over in zip(target.elts, given, strict=True):
                yield from self.walked(one, over)

    def is_walk(self, target: ast.expr, over: ast.expr) -> bool:
        """Return whether all that a loop binds is known."""
        known = [each for each, _ in self.walked(target, over)]
        names = [each for each in ast.walk(target) if isinstance(each, ast.Name)]
        return bool(names) and len(names) == len(known) and all(each in known for each in names)


def _arguments(scope: ast.AST) -> set[str]:
    given = ast.walk(scope.args) if isinstance(scope, Function) else ()
    return {each.arg for each in given if isinstance(each, ast.arg)}


def _of_several(source: SourceFile) -> set[str]:
    """Return the names that inner functions bind for outer ones."""
    outer = (node for node in ast.walk(source.tree) if isinstance(node, ast.Global | ast.Nonlocal))
    return {name for node in outer for name in node.names}
