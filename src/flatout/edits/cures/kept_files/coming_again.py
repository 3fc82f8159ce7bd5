"""Whether the same file is read again soon, as far as the source shows it.

A data set of one file a sample reads each once an epoch: nothing is gained by keeping a few of them. What stands in no
loop and in no function that is called in one is read once.
"""

import ast
from collections.abc import Sequence

from flatout.edits.cures.kept_files.file_blocks import FileBlock
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["comes_again", "kept_already"]

_PLAIN = frozenset({"staticmethod", "classmethod", "property", "no_grad", "override", "typechecked"})
_CHOICES = frozenset({"choice", "choices", "randrange", "randint", "random", "integers", "uniform", "sample", "randn"})
_SHARES = frozenset({"divmod", "bisect", "bisect_right", "bisect_left", "searchsorted"})
_ONCE = frozenset({"main", "__init__", "__post_init__", "setup", "prepare_data"})
_ITEM = "__getitem__"
_ONE_EACH = "each file seems to be read for one sample alone: keeping some would not help"
_NO_LOOP = "it is in no loop, and in no function that is called in one: the file is read once"
_DEPTH = 3  # functions that call one another
_Loop = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def kept_already(source: SourceFile, function: Function) -> str:
    """Return why a function may not be read anew for each call, or not be taken apart."""
    for each in function.decorator_list:
        node = each.func if isinstance(each, ast.Call) else each
        if last_name(node) not in _PLAIN:
            return f"@{ast.unparse(each)} may keep it, or compile it"
    return ""


def comes_again(project: Project, block: FileBlock) -> str:
    """Return why a file is hardly read again; "" where it may be."""
    scope, source = block.scope, block.source
    if not _is_repeated(project, source, block.statements[0], _DEPTH):
        return _NO_LOOP
    if not isinstance(scope, Function):
        return ""
    if scope.name == _ITEM:
        return _one_each(source, scope, [block.read.path])
    calls = [(at, call) for at, call in project.nodes(ast.Call) if last_name(call.func) == scope.name]
    if not calls or any(getattr(at.scope(call), "name", "") != _ITEM for at, call in calls):
        return ""
    said = [_one_each(at, at.scope(call), _given(call)) for at, call in calls]
    return _ONE_EACH if all(said) and not _draws(scope) else ""


def _is_repeated(project: Project, source: SourceFile, node: ast.AST, depth: int) -> bool:
    """Return whether a node may run more than once."""
    scope = source.scope(node)
    for above in source.above(node):
        if above is scope:
            break
        if isinstance(above, _Loop):
            return True
    if not isinstance(scope, Function) or scope.name in _ONCE:
        return False
    if scope.name.startswith("__") or depth == 0:
        return True
    calls = [(at, call) for at, call in project.nodes(ast.Call) if last_name(call.func) == scope.name]
    return not calls or any(_is_repeated(project, at, call, depth - 1) for at, call in calls)


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _one_each(source: SourceFile, scope: ast.AST, paths: Sequence[ast.expr]) -> str:
    """Return why the paths that a data set makes of an index are hardly those of another one."""
    assert isinstance(scope, Function)
    given = [each.arg for each in scope.args.args if each.arg not in ("self", "cls")]
    index, chain = given[0] if given else "", list(paths)
    names = {each.id for path in paths for each in ast.walk(path) if isinstance(each, ast.Name)}
    for node in ast.walk(scope):
        for target, value in pairs(node):
            if isinstance(target, ast.Name) and target.id in names - {index}:
                chain.append(value)
                names |= {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    if index not in names:
        return ""  # the same file, or one that is drawn
    for node in (each for part in chain for each in ast.walk(part)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv):
            return ""
        if isinstance(node, ast.Call) and last_name(node.func) in _SHARES:
            return ""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return ""  # one part of an entry: others say which part of the file is meant
    if any(isinstance(source.parents.get(node), ast.Tuple) for node in ast.walk(scope) if _is_store(node, names)):
        return ""
    return "" if _draws(scope) else _ONE_EACH


def _draws(scope: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and last_name(each.func) in _CHOICES for each in ast.walk(scope))


def _is_store(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Store)
