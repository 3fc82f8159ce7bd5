"""Ways to a function's variables that their names do not show, and names of Python's that mean something else."""

import ast
import builtins
import re
from collections.abc import Iterator

from flatout.edits.reading.blocks import bound_as_words
from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["hidden_access", "is_of_python", "seen_by_name"]

# Frames, cells, what the garbage collector knows, patches, and compilers with rules of their own.
_REACHING = re.compile(
    r"\b(_getframe|_current_frames|currentframe|get(outer|inner)frames|get(generator|coroutine|asyncgen)locals|f_locals"
    r"|f_back|(tb|gi|cr|ag|gr)_frame|set(trace|profile)|get_(objects|referrers|referents)|objgraph|ctypes|cell_contents"
    r"|(__)?builtins(__)?|__(closure|code|reduce|reduce_ex)__|mock|monkeypatch|pdb|breakpoint|jit|njit|numba|fullgraph|export"
    r")\b|\binspect\.(stack|trace)\b|from inspect import|import __main__"
)
_CODE_AS_TEXT = ("eval", "exec", "globals", "locals", "__import__")
_QUERIES = ("eval", "evaluate", "exec", "query")  # methods of libraries that look into the frame of who calls them
_SPACES = ("dir", "vars")
_READING = ("copy", "get", "items", "keys", "values")
_COMPILERS = ("export", "fullgraph", "jit")
_PATCHED = ("collections", "math", "random")
_METACLASSES = ("ABCMeta", "EnumMeta", "EnumType")  # types by them are compared and hashed as ever
_DECORATORS = ("contextlib.contextmanager", "torch.inference_mode", "torch.no_grad")
_OF_METHODS = ("classmethod", "property", "staticmethod")


def is_of_python(source: SourceFile, *names: str) -> bool:
    """Return whether names are those of functions of Python's, and of nothing else in their file."""
    if {*names} & {*source.names.bound, *source.names.imports, *bound_as_words([source.tree])}:
        return False
    froms = (each for each in ast.walk(source.tree) if isinstance(each, ast.ImportFrom))
    return not any(alias.name == "*" for each in froms for alias in each.names)


def hidden_access(project: Project, source: SourceFile, function: Function) -> str:
    """Return what may look into a function, or stand for a function of Python's there, without naming it."""
    reaching = _REACHING.search(project.mentions)
    if reaching is not None:
        return reaching.group()
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = called.id if isinstance(called, ast.Name) else ""
        plain = name in _OF_METHODS and is_of_python(source, name)
        if not plain and source.names.dotted(called) not in _DECORATORS:
            return f"@{ast.unparse(decorator)}"
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and name_called(node) in _QUERIES and (node.args or node.keywords):
            return f"{ast.unparse(node.func)}()"
    return next(_of_project(project), "")


def seen_by_name(project: Project, variable: str) -> str:
    """Return what may read a variable of a function without naming it in code, "" for nothing."""
    reaching = _REACHING.search(project.mentions)
    if reaching is not None and reaching.group() not in _COMPILERS:
        return f"`{reaching.group()}` may read {variable}"
    for source, node in project.nodes(ast.Name):
        is_read = node.id in _CODE_AS_TEXT or (node.id in _SPACES and not _is_of_one(source, node))
        if is_read and node.id not in source.names.bound:
            return f"`{node.id}` may read {variable}"
    calls = (each for _, each in project.nodes(ast.Call))
    queries = (each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr in ("eval", "query"))
    return next((f"`{ast.unparse(each.func)}` may read {variable}" for each in queries if each.args), "")


def _is_of_one(source: SourceFile, name: ast.Name) -> bool:
    """Return whether `vars` or `dir` is asked about one object."""
    call = source.parents[name]
    return isinstance(call, ast.Call) and call.func is name and len(call.args) == 1


def _of_project(project: Project) -> Iterator[str]:
    for each in project.sources:
        if each.path.stem in _PATCHED:
            yield each.shown
    for _, definition in project.nodes(ast.ClassDef):
        kinds = [each.value for each in definition.keywords if each.arg == "metaclass"]
        kinds += [base for base in definition.bases if ast.unparse(base).endswith(("type", "Type", "Meta"))]
        yield from (f"class {definition.name}" for each in kinds if not ast.unparse(each).endswith(_METACLASSES))
    for source, name in project.nodes(ast.Name):
        sets = name.id in ("setattr", "delattr") and not _is_of_object(source, name)
        sets = sets or (name.id == "type" and _makes_class(source.parents[name], name))
        spaces = name.id in _SPACES and not _is_reading(source, name)
        if sets or spaces or name.id in _CODE_AS_TEXT or source.names.dotted(name) == "torch.compile":
            yield f"{name.id}()"
    for source, node in project.nodes(ast.Attribute):
        dotted = source.names.dotted(node)
        if node.attr == "compile" and dotted != "re.compile":
            yield f"{ast.unparse(node)}()"
        elif node.attr == "__dict__" and not _is_only_read(source, node):
            yield ast.unparse(node)
        elif not isinstance(node.ctx, ast.Load) and dotted and _is_patched(dotted):
            yield f"{ast.unparse(node)} = ..."


def _is_patched(dotted: str) -> bool:
    """Return whether what is set of a module is a function that lookups use, or hides one of Python's there."""
    return dotted.startswith(tuple(f"{each}." for each in _PATCHED)) or hasattr(builtins, dotted.rpartition(".")[2])


def _makes_class(call: ast.AST, name: ast.Name) -> bool:
    return isinstance(call, ast.Call) and call.func is name and len(call.args) > 1


def _is_reading(source: SourceFile, name: ast.Name) -> bool:
    """Return whether `vars` or `dir` is called on the spot, for one object, to read."""
    call = source.parents[name]
    return isinstance(call, ast.Call) and call.func is name and len(call.args) == 1 and _is_only_read(source, call)


def _is_only_read(source: SourceFile, node: ast.expr) -> bool:
    """Return whether the dictionary that an expression gives is read where it stands."""
    above = source.parents[node]
    if isinstance(above, ast.Attribute):
        return above.attr in _READING
    if isinstance(above, ast.Subscript):
        return isinstance(above.ctx, ast.Load)
    return not isinstance(above, ast.Assign | ast.NamedExpr | ast.AugAssign | ast.Return | ast.withitem)


def _is_of_object(source: SourceFile, name: ast.Name) -> bool:
    """Return whether `setattr` is called on the spot, for a variable that is no imported module or class."""
    call = source.parents[name]
    if not isinstance(call, ast.Call) or call.func is not name or not call.args:
        return False
    return isinstance(call.args[0], ast.Name) and call.args[0].id not in source.names.imports
