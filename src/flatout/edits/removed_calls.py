"""Calls that a loop is better without: their lines taken out, where nothing in the project can see that."""

import ast
from collections.abc import Sequence

import libcst as cst

from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.error_handlers import caught_at
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.rewrite import Unplaced
from flatout.edits.written_edit import WrittenEdit, with_changes

__all__ = ["removed"]

_WATCHED = {
    "gc.collect": words(
        "weakref WeakValueDictionary WeakKeyDictionary WeakSet finalize __del__ callbacks garbage get_count get_stats "
        "get_objects get_referrers set_debug unfreeze getrefcount tracemalloc psutil getrusage virtual_memory"
    ),
    "torch.cuda.synchronize": words("Stream Event ExternalStream CUDAGraph elapsed_time current_stream ctypes cupy"),
    "torch.cuda.empty_cache": words("psutil pynvml nvidia_smi"),
}
_MEMORY = words(
    "memory_allocated memory_reserved max_memory_allocated max_memory_reserved memory_stats memory_summary "
    "mem_get_info memory_cached max_memory_cached memory_snapshot reset_peak_memory_stats device_memory_used "
    "set_per_process_memory_fraction"
)
_WHOLE = ast.For | ast.While | Function | ast.Module
_TIMERS = words(
    "time perf_counter perf_counter_ns time_ns monotonic process_time default_timer timeit now elapsed_time"
)


def removed(project: Project, source: SourceFile, statement: ast.stmt, names: Sequence[str]) -> WrittenEdit:
    """Take out the line `statement` where it does nothing but call one of `names` (dotted)."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = source.names.dotted(call.func) if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call) or name not in names:
        wanted = " or ".join(f"{each}()" for each in names)
        return WrittenEdit(project, left=(source.at(statement, f"this line is not a call of {wanted} alone"),))
    seen = _seen(project, source, statement, call, name)
    if seen:
        return WrittenEdit(project, left=(source.at(statement, seen),))
    above = source.parents[statement]
    block = next(each for _, each in ast.iter_fields(above) if isinstance(each, list) and statement in each)
    how = _nothing if len(block) > 1 else _pass
    return WrittenEdit(with_changes(project, lines=[(source, statement.lineno, how)]), changed=1)


def _seen(project: Project, source: SourceFile, statement: ast.stmt, call: ast.Call, name: str) -> str:
    """Return what may see that a call is gone, "" where nothing does."""
    if not _is_plain_call(call, name):
        return f"what {name}() is given may be wrong, or do something"
    if any(isinstance(each, ast.ExceptHandler) for each in source.above(statement)):
        return "it is called after an error, whose cause it may take away"
    caught = caught_at(project, source, statement)
    if caught:
        return f"an error of it might be caught by {caught}"
    watched = _WATCHED.get(name, frozenset()) | _MEMORY
    for place, node in project.nodes(ast.Attribute, ast.Name, ast.alias, ast.ImportFrom, ast.FunctionDef):
        found = next((each for each in _names(node) if each in watched), "")
        if found:
            return f"{found} ({place.shown}:{node.lineno}) may see that it is gone"
    for place, node in project.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load) and place.names.dotted(node) == name:
            return f"{name} is set to something else"
    if name != "torch.cuda.synchronize":
        return _seen_by_sets(project, name)
    if any(last_name(each.func) in _TIMERS for each in _calls_around(source, statement)):
        return "what is timed here would no longer be waited for"
    return _unwaited(project) or _seen_by_sets(project, name)


def _names(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.alias):
        return tuple(node.name.split("."))
    if isinstance(node, ast.ImportFrom):
        return tuple((node.module or "").split("."))
    return (getattr(node, "attr", ""), getattr(node, "id", ""), getattr(node, "name", ""))


def _is_plain_call(call: ast.Call, name: str) -> bool:
    if name == "gc.collect":
        given = [*call.args, *(each.value for each in call.keywords if each.arg == "generation")]
        known = all(isinstance(each, ast.Constant) and each.value in (0, 1, 2) for each in given)
        return known and len(given) == len(call.args) + len(call.keywords) <= 1
    return not call.keywords and len(call.args) <= 1 and all(map(is_plain, call.args))


def _seen_by_sets(project: Project, name: str) -> str:
    """Return a call that may put something else in the place of a function."""
    module = name.rpartition(".")[0]
    for place, call in project.nodes(ast.Call):
        given = [place.names.dotted(each) or getattr(each, "value", "") for each in call.args[:2]]
        if last_name(call.func) in ("setattr", "patch", "object") and {module, name} & {str(each) for each in given}:
            return f"{ast.unparse(call)} may set {name} to something else"
    return ""


def _calls_around(source: SourceFile, statement: ast.stmt) -> list[ast.Call]:
    """Return the calls in the innermost loop around a statement, or in its function."""
    whole = next(each for each in source.above(statement) if isinstance(each, _WHOLE))
    return [node for node in ast.walk(whole) if isinstance(node, ast.Call)]


def _unwaited(project: Project) -> str:
    """Return a copy to the host that goes on while the script does, "" for none."""
    for source, call in project.nodes(ast.Call):
        told = any(each.arg == "non_blocking" for each in call.keywords)
        if told and (last_name(call.func) in ("copy_", "cpu") or "cpu" in ast.unparse(call)):
            return f"{source.shown}:{call.lineno}: a copy may have to be waited for"
    return ""


def _nothing(statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
    del module
    if len(statement.body) != 1:
        raise Unplaced
    return ()


def _pass(statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
    del module
    if len(statement.body) != 1:
        raise Unplaced
    return (statement.with_changes(body=[cst.Pass()]),)
