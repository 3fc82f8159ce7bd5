"""What a function does with a copy of a state dict, from the line that makes it to the last one that reads it."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flatout.edits.reading.blocks import block_of, bound_as_words, is_plain, loads, stores
from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.states.state_dicts import is_made_as_module, is_seen, loads_it
from flatout.edits.reading.states.state_values import ASKED, EXACT, FRESH, SAME, WALKS, StateValues
from flatout.edits.reading.states.still_code import StillCode, is_without_gradients

__all__ = ["StateUse", "StateUses"]

_OF_TENSORS = {"dtype", "shape", "device", "ndim", "is_sparse", "requires_grad", "is_cuda", "layout"}
_ENDS = ast.Return | ast.Break | ast.Continue
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


@dataclass(frozen=True)
class StateUse:
    """What is done with a copy.

    Attributes:
        needed: why the copy is needed, "" where it is not.
        loaded: the models that it is loaded into; empty where no item that may be shared is loaded.
        is_written: whether keys of a state dict are bound anew, or left out, here or in another one.
        is_inexact: whether something is computed from items that depends on how they lie in memory.
    """

    needed: str
    loaded: tuple[ast.expr, ...] = ()
    is_written: bool = False
    is_inexact: bool = False


@dataclass
class _Found:
    """What was found so far: names that items have, how they were bound, and where computed values go."""

    known: set[str]
    seen: set[tuple[str, ast.AST | None]] = field(default_factory=set)
    keys: dict[str, tuple[str, ast.AST]] = field(default_factory=dict)  # of names of items: that of the key, the loop
    sinks: set[str] = field(default_factory=set)  # dictionaries that computed values go into, perhaps with a graph
    is_inexact: bool = False
    loaded: tuple[ast.expr, ...] = ()


class StateUses:
    """What a function does with a copy, from the line that makes it to the last one that reads it."""

    def __init__(self, project: Project, source: SourceFile, statement: ast.stmt, name: str) -> None:
        """Take the statement that binds `name` to a copy of the weights of a model."""
        self._project, self._source, self._name, self._statement = project, source, name, statement
        self._scope = source.scope(statement)
        block = block_of(source, statement)
        self._behind = list(_in_order(block[block.index(statement) + 1 :]))
        self._inside = {node for each in self._behind for node in ast.walk(each) if source.scope(node) is self._scope}
        self._values = StateValues(project, source, self._scope)
        self._found = _Found({name})

    def use(self) -> StateUse:
        """Return what is done with the copy."""
        needed = self._needed()
        is_written = any(each in {self._name, *self._values.raw} for each in self._written)
        return StateUse(needed, self._found.loaded, is_written, self._found.is_inexact)

    def _needed(self) -> str:
        """Return why the copy is needed, "" where it is not."""
        name = self._name
        seen_elsewhere = self._seen_elsewhere()
        if seen_elsewhere:
            return seen_elsewhere
        reads = self._named(name, ast.Load)
        if not reads or not self._inside.issuperset(reads):
            return f"{name} is read outside of the block that makes it"
        kept = self._kept(reads)
        if kept:
            return kept
        calls = [node for each in self._behind for node in ast.walk(each) if self._is_load(node)]
        first = next((at for at, each in enumerate(self._behind) if {*ast.walk(each)} & {*calls}), len(self._behind))
        if (self._found.known - {name}) & loads(self._behind[first:]):
            return f"an item of {name} is read after it was loaded"
        last = max(at for at, each in enumerate(self._behind) if self._found.known & loads([each]))
        between = self._behind[: last + 1]
        found = StillCode(self._project, self._source, self._scope, self._values).change(between, calls)
        if found:
            return f"{found} may change the weights before {name} is read for the last time"
        return self._graph() or self._needed_to_load(between, first, calls)

    def _kept(self, reads: Sequence[ast.Name]) -> str:
        """Return why its items, or what is computed from them with a graph, may be kept by somebody."""
        todo, seen = [*reads], {self._name}
        for node in todo:  # grows while it is read
            known = {*self._found.known}
            if not self._is_read(node):
                line = self._source.lines[node.lineno - 1].partition("#")[0].strip()
                return f"{self._name} may be kept, handed on or written into: {line}"
            self._found.known = self._found.known if node in reads else known  # items of others are no items of it
            for name in self._found.sinks - seen:
                seen.add(name)
                todo += self._named(name, ast.Load)
        return ""

    def _seen_elsewhere(self) -> str:
        """Return why other functions, or other files, may see the name."""
        name = self._name
        for node in ast.walk(self._source.tree):
            if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
                return f"{name} is a name of other functions, too"
        otherwise = name in bound_as_words([self._scope]) or not isinstance(self._scope, Function | ast.Module)
        if otherwise or len(self._named(name, ast.Store, ast.Del)) != 1:
            return f"{name} is bound more than once"
        is_seen_elsewhere = isinstance(self._scope, ast.Module) and is_seen(self._project, self._source)
        return f"{name} may be a name of other files, too" if is_seen_elsewhere else ""

    @cached_property
    def _written(self) -> set[str]:
        """Names of what has items bound or deleted."""
        found = (each for each in ast.walk(self._scope) if isinstance(each, ast.Subscript))
        of_names = (each.value.id for each in found if isinstance(each.value, ast.Name) and _is_write(each))
        return {*of_names}

    def _graph(self) -> str:
        """Return where values that torch may have recorded go into something that may be no model."""
        for node in ast.walk(self._scope):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Name):
                continue
            if node.args[0].id in self._found.sinks and loads_it(node, node.args[0]):
                model = node.func.value  # type: ignore[attr-defined]
                if not is_made_as_module(self._project, self._source, model):
                    return f"nothing shows that {ast.unparse(model)} is a model: it may keep what it is given"
        return ""

    # -- loads --------------------------------------------------------------------------------------------------

    def _is_load(self, node: ast.AST) -> bool:
        is_call = isinstance(node, ast.Call) and bool(node.args) and _is_name(node.args[0], self._name)
        return is_call and loads_it(node, node.args[0])  # type: ignore[attr-defined]

    def _needed_to_load(self, between: Sequence[ast.AST], first: int, calls: Sequence[ast.AST]) -> str:
        """Return why it may not be loaded without a copy; the models are in `loaded` where that is to be asked."""
        name = self._name
        for call in calls:
            above = list(self._source.above(call))
            if not all(isinstance(each, ast.Expr | ast.With) for each in above[: above.index(self._block_owner)]):
                return f"{name} may be loaded several times, or not at all"
        if not calls or self._is_all_new(between, first):
            return ""
        if any(isinstance(inner, _ENDS) for each in between for inner in ast.walk(each)):
            return f"{name} may be loaded or not"
        models = {ast.unparse(call.func.value): call.func.value for call in calls}  # type: ignore[attr-defined]
        for text, model in models.items():
            bound = stores(between) | bound_as_words(between)
            if not is_plain(model) or bound & {each.id for each in ast.walk(model) if isinstance(each, ast.Name)}:
                return f"{text} is not known yet where the copy is made"
        self._found.loaded = tuple(models.values())
        return ""

    @property
    def _block_owner(self) -> ast.AST:
        return self._source.parents[self._statement]

    def _is_all_new(self, between: Sequence[ast.AST], first: int) -> bool:
        """Return whether a loop before the first load binds each key to a tensor that nobody else holds.

        Nothing binds one otherwise.
        """
        for node in (inner for each in between for inner in ast.walk(each)):
            if isinstance(node, ast.Subscript) and self._is_own(node) and _is_write(node):
                around = self._source.parents[node]
                if not isinstance(around, ast.Assign) or not self._values.is_fresh(around.value):
                    return False
        return any(isinstance(each, ast.For) and self._binds_each(each) for each in between[:first])

    def _binds_each(self, loop: ast.For) -> bool:
        over, key = loop.iter, loop.target
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute):
            is_pair = over.func.attr == "items" and isinstance(key, ast.Tuple) and len(key.elts) == 2
            if over.func.attr not in ("items", "keys") or (over.func.attr == "items" and not is_pair):
                return False
            over, key = over.func.value, key.elts[0] if isinstance(key, ast.Tuple) else key
        ends = any(isinstance(each, _ENDS) for each in ast.walk(loop))
        if not _is_name(over, self._name) or not isinstance(key, ast.Name) or ends or key.id in stores(loop.body):
            return False
        return any(self._binds_one(each, key.id) for each in _in_with(loop.body))

    def _binds_one(self, node: ast.stmt, key: str) -> bool:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        return isinstance(target, ast.Subscript) and self._is_own(target) and _is_name(target.slice, key)

    def _is_own(self, node: ast.Subscript) -> bool:
        return _is_name(node.value, self._name)

    # -- names ----------------------------------------------------------------------------------------------------

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
            return loads_it(above, node) or is_builtin(self._source, above.func, WALKS)
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
        if isinstance(self._source.parents[above], ast.GeneratorExp):  # it is run later
            return False
        target = above.target
        for at in reversed(places):
            if not isinstance(target, ast.Tuple) or at >= len(target.elts):
                return False
            target = target.elts[at]
        if method == "items" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            key, target = target.elts
            self._found.keys[ast.unparse(target)] = (ast.unparse(key), above)
        within = self._source.parents[above] if isinstance(above, ast.comprehension) else None
        is_one = isinstance(target, ast.Name) and method in ("items", "values")
        return is_one and self._is_value_name(target.id, within)  # type: ignore[attr-defined]

    # -- its items ----------------------------------------------------------------------------------------------

    def _is_value_name(self, name: str, within: ast.AST | None = None) -> bool:
        """Return whether a name that an item is bound to is only read; `within`: a comprehension's variable."""
        if (name, within) in self._found.seen:
            return True
        self._found.seen.add((name, within))
        self._found.known.add(name)
        reads = self._named(name, ast.Load, within=within)
        if name not in self._values.tensors or not self._inside.issuperset(reads):
            return False
        return all(map(self._is_value, reads))

    def _is_value(self, node: ast.expr, *, new: bool = False) -> bool:
        """Return whether a place that an item stands in only reads it; `new`: a value that was computed from it."""
        above = self._source.parents[node]
        if isinstance(above, ast.BinOp):
            self._found.is_inexact |= not isinstance(above.op, ast.Add | ast.Sub | ast.Mult | ast.Div)
            return not isinstance(above.op, ast.MatMult) and self._is_new(above)
        if isinstance(above, ast.UnaryOp):
            return isinstance(above.op, ast.Not) or (isinstance(above.op, ast.USub) and self._is_new(above))
        if isinstance(above, ast.Subscript):
            return above.value is node and isinstance(above.ctx, ast.Load) and self._is_value(above, new=new)
        if isinstance(above, ast.Attribute):
            return self._is_method(above, new=new)
        if isinstance(above, ast.IfExp):
            return above.test is node or self._is_value(above, new=new)
        if isinstance(above, ast.Call) and node in above.args:
            return self._is_argument(above)
        if isinstance(above, ast.Assign) and len(above.targets) == 1:
            return self._is_bound(above.targets[0], node, new=new)
        if isinstance(above, ast.AugAssign):
            return above.value is node and self._is_recorded_by_nobody(node)
        return isinstance(above, ast.Compare | ast.If)

    def _is_new(self, node: ast.expr) -> bool:
        """Return whether a value that was computed from an item goes where it may: anywhere, if it has no graph."""
        return self._is_recorded_by_nobody(node) or self._is_value(node, new=True)

    def _is_recorded_by_nobody(self, node: ast.expr) -> bool:
        """Return whether a computed value holds nothing of its operands, for a backward pass."""
        if is_without_gradients(self._source, node, self._scope):
            return True
        return self._binds_plain and self._is_of_items(node)

    def _is_of_items(self, node: ast.expr) -> bool:
        """Return whether all names in an expression are those of this dictionary, its keys, or items in its loops."""
        parts = (each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
        return all(self._is_plain_item(each) or each.id in self._source.names.imports for each in parts)

    def _is_plain_item(self, node: ast.Name) -> bool:
        looped = node.id in self._found.keys and len(self._named(node.id, ast.Store)) == 1
        return node.id == self._name or node.id in self._values.keys or looped

    @cached_property
    def _binds_plain(self) -> bool:
        """Return whether its keys are bound anew to what is computed from its items alone, if at all."""
        found = (each for each in ast.walk(self._scope) if isinstance(each, ast.Assign))
        items = ((each, to) for each in found for to in each.targets if isinstance(to, ast.Subscript))
        return all(self._is_of_items(each.value) for each, to in items if self._is_own(to))

    def _is_method(self, method: ast.Attribute, *, new: bool) -> bool:
        call = self._source.parents[method]
        if not isinstance(call, ast.Call) or call.func is not method:
            return method.attr in _OF_TENSORS
        if method.attr in FRESH:
            self._found.is_inexact |= method.attr not in EXACT
            return self._is_new(call)
        return method.attr in ASKED or (method.attr in SAME and self._is_value(call, new=new))

    def _is_argument(self, call: ast.Call) -> bool:
        name, method = name_called(call), call.func
        is_of_tensor = isinstance(method, ast.Attribute) and name in FRESH and self._values.is_tensor(method.value)
        if self._values.is_function(call) or is_of_tensor:
            self._found.is_inexact |= name not in EXACT
            return self._is_new(call)
        return is_builtin(self._source, call.func, ("isinstance", "float", "int", "type", "len"))

    def _is_bound(self, target: ast.expr, value: ast.expr, *, new: bool) -> bool:
        """Return whether a value is bound to another name that only reads it, or to a key of a state dict's copy."""
        if isinstance(target, ast.Name):
            return self._is_value_name(target.id)
        into = target.value if isinstance(target, ast.Subscript) else None
        if not isinstance(target, ast.Subscript) or not isinstance(into, ast.Name):
            return False
        if into.id in self._values.dictionaries and (new or self._values.is_fresh(value)):
            self._found.sinks.add(into.id)
            return True
        key, loop = self._found.keys.get(ast.unparse(value), ("", None))
        if not isinstance(loop, ast.For) or loop not in self._source.above(target) or not self._is_own(target):
            return False
        return key == ast.unparse(target.slice) and key not in stores(loop.body)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_write(node: ast.Subscript) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _in_with(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for each in block:
        yield from _in_with(each.body) if isinstance(each, ast.With) else (each,)
