"""Copies of batches to a device, made without waiting."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from flatout.edits.arguments import Given, given, set_argument
from flatout.edits.loaders import made_for_training
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.training_loops import Loop, loops
from flatout.edits.rewrite import OnCall
from flatout.edits.written_edit import Context, WrittenEdit, with_changes
from flatout.fixes.core.edit import CopyArgument

__all__ = ["copy_argument"]

_TYPES = re.compile(r"dtype|b?float\d*|complex\d*|u?int\d*|double|half|long|bool|memory_format")


def copy_argument(piece: CopyArgument, project: Project, context: Context) -> WrittenEdit:
    """Write `non_blocking=True` where what a training loader hands out is copied to a device."""
    del piece
    chosen, _ = made_for_training(project, context)
    edits: list[tuple[SourceFile, ast.Call, OnCall]] = []
    there, left = 0, []
    for source, call in _copies(project, {call for _, call, _ in chosen}):
        found, _ = given(call, "non_blocking", "True", 9)
        if found is Given.EQUAL:
            there += 1
        elif found is not Given.NOTHING:
            left.append(source.at(call, "non_blocking is set already: check it there"))
        elif any(source is place and call is known for place, known, _ in edits):
            continue
        else:
            edits.append((source, call, partial(set_argument, name="non_blocking", code="True", place=9)))
    if not (edits or there or left):
        left.append(
            "no .to(device) or .cuda() of a batch is found beside the training loop: add non_blocking=True there"
        )
    return WrittenEdit(with_changes(project, edits), len(edits), there, tuple(left))


def _copies(project: Project, loaders: set[ast.Call]) -> Iterator[tuple[SourceFile, ast.Call]]:
    flow = Flow(project)
    for source, loop in loops(project):
        if isinstance(loop, ast.While | ast.comprehension):
            continue
        if not any(origin in loaders for _, origin in flow.origins(source, loop.iter)):
            continue
        names = _names(loop)
        for call in ast.walk(loop):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if _root(call.func.value) in names and _copies_to_device(call, call.func):
                yield source, call


def _names(loop: Loop) -> set[str]:
    """Return the names that a loop binds to a batch or a part of one."""
    assert not isinstance(loop, ast.While)
    target = loop.target
    counted = isinstance(loop.iter, ast.Call) and getattr(loop.iter.func, "id", "") == "enumerate"
    if counted and isinstance(target, ast.Tuple):
        target = target.elts[-1]
    names = {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
    for inner in ast.walk(loop):
        if isinstance(inner, ast.comprehension) and _root(inner.iter) in names:
            names |= {each.id for each in ast.walk(inner.target) if isinstance(each, ast.Name)}
    return names


def _root(node: ast.expr) -> str:
    """Return the name that `batch`, `batch["x"]` or `batch.items()` begins with."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "values"):
        node = node.func.value
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _copies_to_device(call: ast.Call, function: ast.Attribute) -> bool:
    if function.attr != "to":
        return function.attr == "cuda"
    if len(call.args) + len([each for each in call.keywords if each.arg == "device"]) != 1:
        return False
    asked = call.args[0] if call.args else call.keywords[0].value
    return not any(_TYPES.fullmatch(part) for part in ast.unparse(asked).split("."))
