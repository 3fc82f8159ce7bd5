"""Whether the same file is read again soon, as far as the source shows it.

A data set of one file a sample reads each once an epoch: nothing is gained by keeping a few of them.
"""

import ast

from flatout.edits.cures.kept_files.file_blocks import FileBlock
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["comes_again", "kept_already"]

_PLAIN = frozenset({"staticmethod", "classmethod", "property", "no_grad", "override", "typechecked"})
_CHOICES = frozenset({"choice", "choices", "randrange", "randint", "random", "integers", "uniform", "sample", "randn"})
_SHARES = frozenset({"divmod", "bisect", "bisect_right", "bisect_left", "searchsorted"})
_ONE_EACH = "each file seems to be read for one sample alone: keeping some would not help"


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
    if not isinstance(scope, Function) or scope.name != "__getitem__":
        return ""
    given = [each.arg for each in scope.args.args if each.arg not in ("self", "cls")]
    index = given[0] if given else ""
    chain = [block.read.path]
    names = {each.id for each in ast.walk(block.read.path) if isinstance(each, ast.Name)}
    for node in ast.walk(scope):
        for target, value in pairs(node):
            if isinstance(target, ast.Name) and target.id in names - {index}:
                chain.append(value)
                names |= {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    if index not in names:
        return ""  # the same file, or one that is drawn
    whole = [node for part in chain for node in ast.walk(part)]
    if any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod | ast.FloorDiv) for each in whole):
        return ""
    if any(isinstance(each, ast.Call) and last_name(each.func) in _SHARES for each in whole):
        return ""
    if any(isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Constant) for each in whole):
        return ""  # one part of an entry: others say which part of the file is meant
    if any(isinstance(source.parents.get(node), ast.Tuple) for node in ast.walk(scope) if _is_store(node, names)):
        return ""
    draws = [each for each in ast.walk(scope) if isinstance(each, ast.Call) and last_name(each.func) in _CHOICES]
    return "" if draws else _ONE_EACH


def _is_store(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Store)
