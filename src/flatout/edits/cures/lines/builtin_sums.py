"""Python's `sum` of a tensor or an array, which adds its rows one by one, as one operation.

    correct += sum(guessed == labels)         correct += added_rows(guessed == labels)

What is given shows when the script runs: a function before the script's own code asks for it, and leaves everything
else to `sum`. Tensors that need gradients are left, too: what is printed of them names the operation; so are arrays of
numbers whose sum might be too large: NumPy tells which operation that was.
"""

import ast
import re
from collections.abc import Iterator

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.called_functions import called_at
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.steady_conditions import module_name
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.set_attributes import SetAttributes
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["as_one_operation"]

_ITEMS = (ast.GeneratorExp, ast.ListComp, ast.List, ast.Tuple, ast.Set, ast.SetComp, ast.Dict, ast.Starred)
_MODES = ("__torch_function__", "__torch_dispatch__", "TorchFunctionMode", "TorchDispatchMode")
_NEEDED = ("sum", "len", "type", "bool")
_COMPILERS = re.compile(r"\bn?jit\b")  # which read the code of functions, or the operations
_ADDING = {*_NEEDED, "__iter__", "__add__", "__radd__"}


def as_one_operation(place: EditPlace) -> WrittenEdit:
    """Write the sums of the finding's statement, or else of a function that it calls, for tensors as a whole."""
    watching = next((name for name in _MODES if name in place.project.mentions), "")
    if watching:
        return place.left(f"{watching} may see which operations are done")
    compiler = _COMPILERS.search(place.project.mentions)
    if compiler:
        return place.left(f"{compiler.group()} may not know a function that asks what it is given")
    replaced = sorted(_ADDING & SetAttributes(place.project).on_modules)
    if replaced:
        return place.left(f"{replaced[0]} of a module or a class of a library's is set")
    left = "Python's sum() of one thing that may be a tensor is not found on this line, or in what it calls"
    for source, node in ((place.source, place.statement), *called_at(place.project, place.statement)):
        found = list(_sums(source, node))
        if found:
            try:
                return WrittenEdit(_written(place.project, source, found), changed=1)
            except Unplaced:
                left = f"{source.shown}: torch is not imported as a whole, or there is no place behind the imports"
    return place.left(left)


def _written(project: Project, source: SourceFile, found: list[ast.Call]) -> Project:
    """Return the project with these sums done by a function of their file.

    Raises:
        Unplaced: there is no place for it.
    """
    torch = module_name(source, "torch")
    imported = _import_of(source, torch)
    if not torch or imported is None:
        raise Unplaced
    changes, name = TextChanges(source), fresh_name(source, "added_rows")
    for call in found:
        changes.replace(call.func, name)
    changes.after(imported, *_function(name, torch, module_name(source, "numpy")))
    return changes.done(project)


def _sums(source: SourceFile, inside: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of `sum` with one argument that is no collection as it is written."""
    for node in ast.walk(inside):
        is_call = isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
        if is_call and is_builtin(source, node.func, _NEEDED[:1]) and not isinstance(node.args[0], _ITEMS):  # type: ignore[attr-defined]
            yield node  # type: ignore[misc]


def _import_of(source: SourceFile, torch: str) -> ast.stmt | None:
    """Return the last of the imports that stand together, from that of torch on; None where a name is not Python's."""
    anything = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(source.tree))
    if anything or not all(is_builtin(source, ast.Name(name), _NEEDED) for name in _NEEDED):
        return None
    found: ast.stmt | None = None
    for node in source.tree.body:
        begins = isinstance(node, ast.Import) and any((each.asname or each.name) == torch for each in node.names)
        if begins or (found is not None and isinstance(node, ast.Import | ast.ImportFrom)):
            found = node
        elif found is not None:
            return found
    return found


def _function(name: str, torch: str, numpy: str) -> Iterator[str]:
    """Yield the lines of a function that adds the rows of what it is given."""
    kinds = ", ".join(f"{torch}.{each}" for each in ("bool", "int64", "float32", "float64"))
    yield from ("", "")
    yield f"def {name}(rows):  # the builtin adds the rows of a tensor one by one"
    yield f"    plain = type(rows) is {torch}.Tensor and rows.layout is {torch}.strided and not rows.requires_grad"
    yield "    if plain and not rows.is_nested and (0 < rows.dim() < 3 or rows.is_contiguous()):"
    yield f"        if rows.dim() and len(rows) and rows.dtype in ({kinds}):"
    yield "            return 0 + rows.sum(0)"
    if numpy:
        yield f"    plain = type(rows) is {numpy}.ndarray and rows.dtype.str in ('|b1', '<i8', '<f8')"
        yield "    if plain and rows.ndim and rows.size:"
        yield "        if rows.dtype == bool or (-(2**31) < rows.min() and rows.max() < 2**31):"
        yield "            return 0 + rows.sum(0)"
    yield "    return sum(rows)"
