"""Code that only computes: it writes into nothing that others hold, and calls nothing that may.

What is not known to be quiet counts as loud: calls of other functions, writes into items and attributes, sums in place.
A function of the user's is quiet where all of its code is.
"""

import ast
import functools
from collections.abc import Callable, Iterable, Iterator

from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.dataflow import Flow, pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.own_meanings import own_operator
from flatout.edits.reading.set_attributes import SetAttributes
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = [
    "COMPUTING",
    "SAME_VALUES",
    "appends_to_own",
    "is_builtin",
    "is_computing",
    "is_counter",
    "is_of_users",
    "is_own",
    "loud",
]

COMPUTING = frozenset({  # functions and methods of torch's that make something new
    "abs", "add", "all", "allclose", "any", "argmax", "argmin", "argsort",
    "clamp", "clone", "cos", "div", "divide", "dot", "empty_like", "eq",
    "equal", "exp", "full_like", "is_complex", "is_floating_point", "is_tensor", "isfinite", "isnan", "item",
    "lerp", "log", "max", "maximum", "mean", "median", "min", "minimum", "mul", "multiply", "ne", "norm",
    "numel", "ones_like", "pow", "rand_like", "randn_like", "rsqrt", "sign", "sin", "sqrt", "square", "stack",
    "std", "sub", "subtract", "sum", "tanh", "tensor", "tolist", "true_divide", "var", "where", "zeros_like",
    "dim", "size", "element_size", "get_device",
})  # fmt: skip
SAME_VALUES = frozenset({  # methods that may give back what they are called on
    "detach", "float", "double", "half", "bfloat16", "to", "type", "type_as", "cpu", "cuda", "view", "view_as",
    "ravel", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "long", "int",
})  # fmt: skip
_METHODS = COMPUTING | SAME_VALUES | {
    "keys", "items", "values", "get", "state_dict", "startswith", "endswith", "format", "join", "split",
    "strip", "lower", "upper", "replace", "count", "index", "copy", "encode", "decode", "isdigit", "isalpha",
    "title",
}  # fmt: skip
_SWITCHES = {f"torch.{name}" for name in ("no_grad", "inference_mode", "enable_grad", "set_grad_enabled", "device")}
_DRAWS = {"random", "randint", "randrange", "uniform", "gauss", "choice", "choices", "sample", "getrandbits"}
_BUILTINS = {
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "frozenset", "int", "isinstance",
    "len", "list", "max", "min", "print", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum",
    "tuple", "type", "zip",
}  # fmt: skip
_WALKING = _BUILTINS - {"abs", "bool", "divmod", "float", "int", "isinstance", "len", "range", "round", "type"}
_LAZY = ("map", "filter", "starmap", "imap", "imap_unordered", "iter")
_DEPTH = 3
_ITERATORS = ("__iter__", "__next__", "__getitem__")
_Knows = Callable[[ast.AST], bool]


def is_builtin(source: SourceFile, node: ast.expr, names: Iterable[str] = _BUILTINS) -> bool:
    """Return whether a name is that of a function of Python's, and of nothing else in its file."""
    known = isinstance(node, ast.Name) and node.id in names
    return known and node.id not in {*source.names.bound, *source.names.imports}  # type: ignore[attr-defined]


def is_computing(source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call only computes, whoever calls it."""
    if any(each.arg in ("out", "inplace", "key", "default") for each in call.keywords):
        return False
    dotted = source.names.dotted(call.func)
    package, _, name = dotted.rpartition(".")
    if package == "torch":
        return name in COMPUTING or dotted in _SWITCHES
    if package in ("random", "numpy.random"):
        return name in _DRAWS
    if dotted:
        return package == "math" or dotted in ("copy.deepcopy", "copy.copy")
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _METHODS
    return is_builtin(source, call.func)


def loud(project: Project, source: SourceFile, nodes: Iterable[ast.AST], knows: _Knows, depth: int = _DEPTH) -> str:
    """Return what below `nodes` may write into something; "" where all is quiet, or `knows` a node to be."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if not knows(node):
            found = next(_said(project, source, node, knows, depth), "")
            if found:
                return found
    return ""


def _said(project: Project, source: SourceFile, node: ast.AST, knows: _Knows, depth: int) -> Iterator[str]:
    if _is_write(source, node):
        yield ast.unparse(node)
    elif isinstance(node, ast.Call) and not is_computing(source, node) and not is_of_users(project, node.func):
        yield f"{ast.unparse(node.func)}()"
    elif isinstance(node, ast.withitem) and not isinstance(node.context_expr, ast.Call):
        yield f"with {ast.unparse(node)}"
    elif isinstance(node, ast.Call) and _is_set(project, source, node.func):
        yield f"{ast.unparse(node.func)}()"
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and _runs_code(project, source, node.iter, knows):
        yield f"for ... in {ast.unparse(node.iter)}"
    elif _is_operation(node) and own_operator(project):
        yield ast.unparse(node)
    yield from (ast.unparse(node) for each in _consumed(source, node) if _runs_code(project, source, each, knows))
    if isinstance(node, ast.Name | ast.Attribute) and is_of_users(project, node):  # called, handed on, or a property
        yield from _said_by(project, node, depth)


def _is_write(source: SourceFile, node: ast.AST) -> bool:
    """Return whether a node writes into something that others may hold, or lets others run before it goes on."""
    if isinstance(node, ast.AugAssign):
        return not is_counter(source, node)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return not is_own(source, node.value)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        return node.attr in ("data", "grad")
    return isinstance(node, ast.Yield | ast.YieldFrom | ast.Await)


def _is_set(project: Project, source: SourceFile, function: ast.expr) -> bool:
    """Return whether a method has the name of an attribute that is set: that of a layer maybe, or a lambda's."""
    if not isinstance(function, ast.Attribute):
        return False
    found = _set_attributes(project)
    return function.attr in (found.on_modules if source.names.dotted(function) else found.on_objects)


@functools.lru_cache(maxsize=2)
def _set_attributes(project: Project) -> SetAttributes:
    return SetAttributes(project)


def _is_operation(node: ast.AST) -> bool:
    is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    return is_set or isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare)


def _consumed(source: SourceFile, node: ast.AST) -> list[ast.expr]:
    """Return what is walked without a loop: unpacked, or given to a function of Python's that takes all of it."""
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.Assign) and any(isinstance(each, ast.Tuple | ast.List) for each in node.targets):
        return [] if isinstance(node.value, ast.Tuple | ast.List) else [node.value]
    is_call = isinstance(node, ast.Call) and is_builtin(source, node.func, _WALKING)
    return list(node.args) if is_call else []  # type: ignore[attr-defined]


def is_of_users(project: Project, node: ast.expr) -> bool:
    """Return whether a name may be that of a function or method of the user's."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in project.functions


def _said_by(project: Project, node: ast.Name | ast.Attribute, depth: int) -> Iterator[str]:
    name = node.attr if isinstance(node, ast.Attribute) else node.id
    for place, function in project.functions[name]:
        if depth == 0 or function.decorator_list or loud(project, place, function.body, lambda _: False, depth - 1):
            yield f"{ast.unparse(node)}()"


def _runs_code(project: Project, source: SourceFile, over: ast.expr, knows: _Knows) -> bool:
    """Return whether code of the user's may run in each turn of a loop over something: that of an iterator."""
    leaves = [each for each in ast.walk(over) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    leaves = [each for each in leaves if not (knows(each) or is_builtin(source, each) or is_own(source, each))]
    if not leaves or all(each.id in source.names.imports for each in leaves):
        return False
    made = [name_called(call) for leaf in leaves for _, call in Flow(project).origins(source, leaf)]
    if any("Loader" in name or name in _LAZY for name in made):
        return True
    makers = [(place, function) for name in _ITERATORS for place, function in project.functions.get(name, ())]
    makers += [each for known in project.functions.values() for each in known if _is_generator(each[1])]
    return any(_writes(place, function) for place, function in makers)


def _is_generator(function: Function) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function))


def _writes(source: SourceFile, function: Function) -> bool:
    """Return whether an iterator may write into something besides what it makes itself."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and not is_computing(source, node) and not appends_to_own(source, node):
            return True
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            return not is_own(source, node.value)
    return False


def is_counter(source: SourceFile, node: ast.AugAssign) -> bool:
    """Return whether what is added to is a number, wherever else it is bound."""
    target = node.target
    if isinstance(target, ast.Subscript):
        return False
    scope: ast.AST = source.scope(node) if isinstance(target, ast.Name) else source.tree
    name = ast.unparse(target)
    bound = [value for each in ast.walk(scope) for to, value in pairs(each) if ast.unparse(to) == name]
    alike = [each for each in ast.walk(scope) if isinstance(each, ast.Name | ast.Attribute | ast.arg)]
    stores = [each for each in alike if isinstance(each, ast.arg) or isinstance(each.ctx, ast.Store)]
    named = [each for each in stores if (each.arg if isinstance(each, ast.arg) else ast.unparse(each)) == name]
    added = [each for each in ast.walk(scope) if isinstance(each, ast.AugAssign) and ast.unparse(each.target) == name]
    return bool(bound) and len(named) == len(bound) + len(added) and all(map(_is_plain_number, bound))


def _is_plain_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float | str)


def is_own(source: SourceFile, node: ast.expr) -> bool:
    """Return whether a name stands for a list or dictionary that its function makes, wherever it is bound."""
    if not isinstance(node, ast.Name):
        return False
    scope = source.scope(node)
    stored = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == node.id]
    stored = [each for each in stored if not isinstance(each.ctx, ast.Load)]
    bound = [v for each in ast.walk(scope) for to, v in pairs(each) if isinstance(to, ast.Name) and to.id == node.id]
    given = ast.walk(scope.args) if isinstance(scope, Function) else ()
    if len(bound) != len(stored) or any(isinstance(each, ast.arg) and each.arg == node.id for each in given):
        return False
    return bool(bound) and all(isinstance(each, ast.List | ast.Dict | ast.ListComp | ast.DictComp) for each in bound)


def appends_to_own(source: SourceFile, node: ast.AST) -> bool:
    """Return whether a call adds something to a list that its function makes."""
    if not isinstance(node, ast.Call) or name_called(node) not in ("append", "extend"):
        return False
    return isinstance(node.func, ast.Attribute) and is_own(source, node.func.value)
