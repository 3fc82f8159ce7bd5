"""Whether a script does the same with tensors that have no graph: what is done with them reads their numbers alone.

What is not known to read numbers counts as more: calls of functions that are not seen, texts made of tensors, `is`,
items and attributes whose readers do more, values that a function yields or keeps. Names are followed to all places
that read them, through the user's functions and to those that call them.
"""

import ast
import sys

from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.dataflow import Flow, pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.recorded_values import (
    ENDING,
    WITHOUT_GRAPH,
    is_indices,
    is_ranked,
    is_torch_function,
    may_record,
)
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import PURE_FUNCTIONS, PURE_METHODS
from flatout.edits.reading.quiet_code import SAME_VALUES, is_builtin
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["KEEPING", "TENSOR_METHODS", "NumberUses", "is_model", "renewed_between"]

KEEPING = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "update", "setdefault"})
_GOING_ON = frozenset(PURE_METHODS) | frozenset(name.rpartition(".")[2] for name in PURE_FUNCTIONS if "torch" in name)
TENSOR_METHODS = (_GOING_ON | SAME_VALUES) - {"numpy", "data", "keys", "copy"} | {
    "relu",
    "pow",
    "items",
    "values",
    "clone",
}
_NUMBERS = ("float", "int", "bool", "len", "isinstance", "range")
_HANDED_ON = ("sum", "max", "min", "abs", "list", "tuple", "zip", "enumerate", "reversed", "round", "dict")
_LOOKING = frozenset({"globals", "locals", "vars", "exec", "eval", "__dict__", "__torch_function__"})
_DISPLAYS = ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Starred | ast.IfExp | ast.BoolOp
_MADE = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.Constant | ast.Call | ast.BinOp | ast.UnaryOp
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class NumberUses:
    """Follows values; `reason` says what does more with one of them than to read its numbers."""

    def __init__(self, project: Project) -> None:
        """Follow nothing yet."""
        self._project = project
        self._seen: set[tuple[ast.AST, str]] = set()
        self.reason = next(
            (f"{name} may find it" for name in map(_looking, project.nodes(ast.Name, ast.Attribute)) if name), ""
        )

    def _more(self, source: SourceFile, node: ast.AST, words: str = "") -> None:
        placed = next(each for each in (node, *source.above(node)) if isinstance(each, ast.expr | ast.stmt))
        text = words or ast.unparse(placed).split("\n")[0]
        self.reason = self.reason or source.at(placed, f"`{text}` may do more than to read its numbers")

    # -- values -------------------------------------------------------------------------------------------------

    def follow(self, source: SourceFile, node: ast.expr, *, inside: ast.AST | None = None) -> None:
        """Follow the value of an expression; what the function `inside` returns is looked at by who calls it."""
        if self.reason or (node, "") in self._seen:
            return
        self._seen.add((node, ""))
        above = source.parents[node]
        if isinstance(above, ast.Call):
            self._in_call(source, node, above, inside)
        elif isinstance(above, ast.keyword):
            call = source.parents[above]
            if isinstance(call, ast.Call) and above.arg is not None:
                self._in_call(source, node, call, inside)
            else:
                self._more(source, node)
        elif isinstance(above, ast.Attribute):
            self._in_attribute(source, above, inside)
        elif isinstance(above, ast.Subscript):
            self._in_item(source, node, above, inside)
        elif isinstance(above, ast.expr):
            self._in_expression(source, node, above, inside)
        else:
            self._in_statement(source, node, above, inside)

    def _in_expression(self, source: SourceFile, node: ast.expr, above: ast.expr, inside: ast.AST | None) -> None:
        match above:
            case ast.Compare():
                plain = all(not isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in above.ops)
                if not plain and ast.unparse(above.comparators[0]) != "None":
                    self._more(source, above)
            case ast.UnaryOp(op=ast.Not()) | ast.Slice():
                pass
            case ast.BinOp(op=ast.Mod(), left=ast.Constant() | ast.JoinedStr()):
                self._more(source, above)
            case ast.BinOp() | ast.UnaryOp():
                self.follow(source, above, inside=inside)
            case ast.IfExp() if node is above.test:
                pass
            case _ if isinstance(above, _DISPLAYS | _COMPREHENSIONS) and node is not getattr(above, "key", None):
                self.follow(source, above, inside=inside)
            case ast.NamedExpr():
                self.bound(source, above.target, above, inside=inside)
                self.follow(source, above, inside=inside)
            case ast.FormattedValue() if above.format_spec is not None and above.conversion == -1:
                pass
            case _:
                self._more(source, above)

    def _in_item(self, source: SourceFile, node: ast.expr, above: ast.Subscript, inside: ast.AST | None) -> None:
        is_read = node is not above.slice and isinstance(above.ctx, ast.Load)
        if is_read and not is_indices(self._project, source, above):
            self.follow(source, above, inside=inside)

    def _in_attribute(self, source: SourceFile, above: ast.Attribute, inside: ast.AST | None) -> None:
        call = source.parents[above]
        if not isinstance(above.ctx, ast.Load):
            self._more(source, source.statement(above))
        elif isinstance(call, ast.Call) and call.func is above:
            is_put = above.attr in KEEPING | {"clear"} and isinstance(source.parents[call], ast.Expr)  # into a list
            if above.attr in self._project.functions or not (is_put or above.attr in ENDING | TENSOR_METHODS):
                self._more(source, call)
            elif not is_put and above.attr not in ENDING:
                self.follow(source, call, inside=inside)
        elif above.attr not in WITHOUT_GRAPH | {"data", "indices"}:
            plain = not above.attr.startswith(("_", "grad", "requires", "is_leaf"))
            self.follow(source, above, inside=inside) if plain else self._more(source, above)

    def _in_statement(self, source: SourceFile, node: ast.expr, above: ast.AST, inside: ast.AST | None) -> None:
        match above:
            case ast.Expr() | ast.If() | ast.While() | ast.Assert():
                pass
            case ast.AugAssign():
                self.held(source, above.target, inside=inside)
            case ast.Assign() | ast.AnnAssign():
                for target in above.targets if isinstance(above, ast.Assign) else [above.target]:
                    self.bound(source, target, node, inside=inside)
            case ast.For() | ast.comprehension():
                self.bound(source, above.target, node, inside=inside)
            case ast.Return() if inside is None or source.scope(above) is not inside:
                self._returned(source, above)
            case ast.Return():
                pass
            case _:
                self._more(source, source.statement(node) if not isinstance(above, ast.stmt) else above)

    # -- what is bound ------------------------------------------------------------------------------------------

    def bound(self, source: SourceFile, target: ast.expr, value: ast.expr, *, inside: ast.AST | None = None) -> None:
        """Follow what a target keeps."""
        match target:
            case ast.Tuple() | ast.List():
                for at, each in enumerate(target.elts):
                    if not (at == 1 and is_ranked(self._project, source, value)):
                        self.bound(source, each, value, inside=inside)
            case ast.Name():
                self._read(source, target, inside)
            case ast.Starred():
                self.bound(source, target.value, value, inside=inside)
            case ast.Subscript():
                self.held(source, target.value, inside=inside)
            case ast.Attribute() if inside is None and not target.attr.startswith("__"):
                self._read_attribute(target.attr)
            case _:
                self._more(source, target)

    def held(self, source: SourceFile, holder: ast.expr, *, inside: ast.AST | None = None) -> None:
        """Follow what a list, a dictionary or a total holds from now on."""
        while isinstance(holder, ast.Subscript):
            holder = holder.value
        if not isinstance(holder, ast.Name):
            self.bound(source, holder, holder, inside=inside)
            return
        scope = _binding_scope(source, holder)
        is_seen = scope is not source.tree or not self._is_imported(source, holder.id)
        if not is_seen or not self._is_made_here(scope, holder):
            self._more(source, holder)
        elif (scope, holder.id) not in self._seen:
            self._seen.add((scope, holder.id))
            for node in ast.walk(scope):
                if isinstance(node, ast.Name) and node.id == holder.id and isinstance(node.ctx, ast.Load):
                    self.follow(source, node, inside=inside)

    def _is_made_here(self, scope: ast.AST, holder: ast.Name) -> bool:
        """Return whether a variable stands for nothing but what its scope makes, which nobody else holds."""
        inside = list(ast.walk(scope))
        made = [
            value for each in inside for to, value in pairs(each) if isinstance(to, ast.Name) and to.id == holder.id
        ]
        named = [each for each in inside if isinstance(each, ast.Name) and each.id == holder.id and each is not holder]
        stored = [each for each in named if isinstance(each.ctx, ast.Store)]
        added = [each for each in inside if isinstance(each, ast.AugAssign) and each.target in stored]
        is_given = any(isinstance(each, ast.arg) and each.arg == holder.id for each in inside)
        called = {last_name(each.func) for each in made if isinstance(each, ast.Call)}
        is_all = len(made) + len(added) == len(stored) and all(isinstance(each, _MADE) for each in made)
        return is_all and not is_given and called.isdisjoint(self._project.functions)

    def _read_attribute(self, name: str) -> None:
        if (self._project.script.tree, name) in self._seen:
            return
        self._seen.add((self._project.script.tree, name))
        for source, node in self._project.nodes(ast.Attribute, ast.Constant):
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
                self.follow(source, node)
            elif isinstance(node, ast.Constant) and node.value == name and isinstance(source.parents[node], ast.Call):
                self._more(source, source.parents[node])  # getattr(self, "name")

    def _read(self, source: SourceFile, target: ast.Name, inside: ast.AST | None) -> None:
        """Follow the places that read a variable which is bound at one."""
        if (target, target.id) in self._seen:
            return
        self._seen.add((target, target.id))
        shared = [node for node in ast.walk(source.tree) if isinstance(node, ast.Global | ast.Nonlocal)]
        is_shared = any(target.id in node.names for node in shared)
        scope = source.tree if is_shared else source.scope(target)
        if isinstance(scope, ast.ClassDef) or (scope is source.tree and self._is_imported(source, target.id)):
            self._more(source, target)
        for node in ast.walk(scope):
            if not isinstance(node, ast.Name) or node.id != target.id or not isinstance(node.ctx, ast.Load):
                continue
            if is_shared or not renewed_between(source, target, node):
                self.follow(source, node, inside=inside)

    def _is_imported(self, source: SourceFile, name: str) -> bool:
        others = ((at, node) for at, node in self._project.nodes(ast.alias, ast.Attribute) if at is not source)
        return any((node.name if isinstance(node, ast.alias) else node.attr) in (name, "*") for _, node in others)

    # -- calls --------------------------------------------------------------------------------------------------

    def _in_call(self, source: SourceFile, node: ast.expr, call: ast.Call, inside: ast.AST | None) -> None:
        if node is call.func or is_builtin(source, call.func, _NUMBERS):
            return
        name, dotted = last_name(call.func), source.names.dotted(call.func)
        is_method = isinstance(call.func, ast.Attribute) and not dotted
        if any(isinstance(each, ast.Starred) for each in call.args) or any(e.arg == "out" for e in call.keywords):
            self._more(source, call)
        elif name in self._project.functions and not dotted:
            self._given(source, node, call, inside)
        elif isinstance(call.func, ast.Attribute) and is_method and name in KEEPING:
            self.held(source, call.func.value, inside=inside)
        elif self._goes_on(source, call, name, is_method=is_method):
            if name not in ENDING or not (dotted or is_method):
                self.follow(source, call, inside=inside)
        else:
            self._more(source, call)

    def _goes_on(self, source: SourceFile, call: ast.Call, name: str, *, is_method: bool) -> bool:
        """Return whether a call makes something of what it is given, and does nothing else with it."""
        if is_builtin(source, call.func, _HANDED_ON) or is_torch_function(source, call.func):
            return True
        return (is_method and name in TENSOR_METHODS | ENDING) or is_model(self._project, source, call.func)

    def _given(self, source: SourceFile, node: ast.expr, call: ast.Call, inside: ast.AST | None) -> None:
        """Follow what functions of the user's do with an argument, and what they give back for it."""
        for place, function in self._project.functions[last_name(call.func)]:
            given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            for each in (each for each in given if each.arg not in ("self", "cls")):
                for inner in ast.walk(function):
                    if isinstance(inner, ast.Name) and inner.id == each.arg and isinstance(inner.ctx, ast.Load):
                        self.follow(place, inner, inside=function)
            if function.args.vararg or function.args.kwarg or function.decorator_list:
                self._more(source, call)
        if may_record(self._project, source, call):
            self.follow(source, call, inside=inside)

    def _returned(self, source: SourceFile, statement: ast.Return) -> None:
        """Follow what a function returns to the places that call it."""
        function = source.scope(statement)
        is_plain = isinstance(function, Function) and not function.name.startswith("__")
        wrapped = [ast.unparse(each) for each in getattr(function, "decorator_list", ())]
        is_plain = is_plain and all(each in ("staticmethod", "classmethod", "torch.no_grad()") for each in wrapped)
        if not is_plain or not isinstance(function, Function) or function.name == "forward":
            self._more(source, statement)
            return
        if (function, "return") in self._seen:
            return
        self._seen.add((function, "return"))
        for place, node in self._project.nodes(ast.Name, ast.Attribute):
            if _name(node) != function.name:
                continue
            call = place.parents[node]
            if isinstance(call, ast.Call) and call.func is node:
                self.follow(place, call)
            else:
                self._more(place, node)


def _looking(found: tuple[SourceFile, ast.Name | ast.Attribute]) -> str:
    """Return a name by which variables and attributes are read unseen, "" for others."""
    _, node = found
    is_own = isinstance(node, ast.Name) or node.attr.startswith("__")
    return _name(node) if is_own and _name(node) in _LOOKING else ""


def _binding_scope(source: SourceFile, node: ast.Name) -> ast.AST:
    """Return the function, or the module, that binds a variable."""
    if any(isinstance(each, ast.Global) and node.id in each.names for each in ast.walk(source.tree)):
        return source.tree
    for scope in (each for each in source.above(node) if isinstance(each, Function | ast.Lambda)):
        inside = [each for each in ast.walk(scope) if source.scope(each) is scope]
        shared = any(isinstance(each, ast.Nonlocal) and node.id in each.names for each in inside)
        if not shared and any(node.id in (getattr(each, "arg", ""), _stored(each)) for each in inside):
            return scope
    return source.tree


def _stored(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def is_model(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether what is called is an object that is made by calls that are seen, such as a model or a loss."""
    if isinstance(node, ast.Call):  # nn.MSELoss()(out, y)
        return source.names.dotted(node.func).startswith("torch.nn.")
    if source.names.dotted(node):
        return False
    if isinstance(node, ast.Subscript):  # heads[name](x)
        return is_model(project, source, node.value)
    walked = [each for each in ast.walk(source.scope(node)) if isinstance(each, ast.For | ast.comprehension)]
    walked = [each for each in walked if isinstance(node, ast.Name) and node.id in _targets(each.target)]
    flow = Flow(project)
    held = (one for each in walked for one in _walked_over(each.iter))
    made = [each for of in (node, *held) for each in flow.origins(source, of)]
    return bool(made) and all(_makes_model(project, *each) for each in made)


def _walked_over(node: ast.expr) -> list[ast.expr]:
    """Return what a loop takes items of: `self.heads` of `enumerate(self.heads.values())`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "values"):
        return _walked_over(node.func.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("enumerate", "zip"):
        return [one for each in node.args for one in _walked_over(each)]
    return [node]


def _makes_model(project: Project, source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call makes an object of a class, or a model of a library's."""
    name, dotted = last_name(call.func), source.names.dotted(call.func)
    if name in project.classes or (dotted and name[:1].isupper()):
        return True
    root = dotted.partition(".")[0]
    return bool(root) and root not in sys.stdlib_module_names and root not in ("torch", "numpy")


def renewed_between(source: SourceFile, target: ast.Name, read: ast.Name) -> bool:
    """Return whether a variable that is bound at one place is another one where it is read, whatever way is taken."""
    if source.scope(target) is not source.scope(read):
        return False
    bound = {target, *source.above(target)}
    inner: ast.AST = read
    for above in source.above(read):
        if isinstance(inner, ast.stmt):
            if inner in bound:
                return False
            block = block_of(source, inner)
            for each in reversed(block[: block.index(inner)]):
                if each in bound:
                    return False
                if _binds(each, read.id):
                    return True
        if isinstance(above, ast.For) and inner in above.body and read.id in _targets(above.target):
            return target not in ast.walk(above.target)
        if isinstance(above, Function | ast.Lambda | ast.ClassDef):
            return False
        inner = above
    return False


def _binds(statement: ast.stmt, name: str) -> bool:
    """Return whether a statement binds a name anew, whatever that was before."""
    if not isinstance(statement, ast.Assign):
        return False
    values = {each.id for each in ast.walk(statement.value) if isinstance(each, ast.Name)}
    return name not in values and any(name in _targets(each) for each in statement.targets)


def _targets(target: ast.expr) -> set[str]:
    if isinstance(target, ast.Tuple | ast.List):
        return set().union(*map(_targets, target.elts))
    return {target.id} if isinstance(target, ast.Name) else set()
