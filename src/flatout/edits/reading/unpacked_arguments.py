"""What the `**` of a call holds, where the source tells: dictionaries that are written out and never changed."""

import ast
from collections.abc import Iterator

import libcst as cst

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["Held", "unpacked", "with_item"]

Held = list[dict[str, str]]
"""The arguments that a `**` stands for, as code by name; one dictionary for each way that the script may take."""


def unpacked(source: SourceFile, call: ast.Call) -> Held | None:
    """Return what the one `**` of a call holds; None where that cannot be told, or where there is more to unpack."""
    held = [each.value for each in call.keywords if each.arg is None]
    if len(held) != 1 or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    return _held(source, held[0], set())


def _held(source: SourceFile, node: ast.expr, seen: set[ast.AST]) -> Held | None:
    if node in seen:
        return None
    seen = {*seen, node}
    if isinstance(node, ast.IfExp):
        ways = [_held(source, each, seen) for each in (node.body, node.orelse)]
        return _all(ways)
    if isinstance(node, ast.Dict):
        return _written_out(source, list(zip(node.keys, node.values, strict=True)), seen)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        if "dict" in source.names.bound or "dict" in source.names.imports:
            return None
        given = ((ast.Constant(each.arg) if each.arg is not None else None, each.value) for each in node.keywords)
        return _written_out(source, list(given), seen)
    if isinstance(node, ast.Name):
        return _all([_held(source, each, seen) for each in _bindings(source, node)])
    return None


def _all(ways: list[Held | None]) -> Held | None:
    """Return the contents of all ways together, None where there is none or one cannot be told."""
    known = [each for each in ways if each is not None]
    return [each for way in known for each in way] if known and len(known) == len(ways) else None


def _written_out(source: SourceFile, items: list[tuple[ast.expr | None, ast.expr]], seen: set[ast.AST]) -> Held | None:
    found: Held = [{}]
    for key, value in items:
        more: Held | None
        if key is None:  # {**others}
            more = _held(source, value, seen)
        else:
            more = (
                [{key.value: ast.unparse(value)}] if isinstance(key, ast.Constant) and type(key.value) is str else None
            )
        if more is None:
            return None
        found = [{**before, **each} for before in found for each in more]
    return found


def _bindings(source: SourceFile, node: ast.Name) -> list[ast.expr]:
    """Return what a function's own name is bound to; nothing where it may be bound or changed in another way."""
    scope = source.scope(node)
    if not isinstance(scope, Function):
        return []
    bound = [value for each in ast.walk(scope) for value in _bound(each, node.id)]
    used = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == node.id]
    stored = sum(isinstance(each.ctx, ast.Store) for each in used)
    read = [each for each in used if isinstance(each.ctx, ast.Load)]
    declared = any(isinstance(each, ast.Global | ast.Nonlocal) and node.id in each.names for each in ast.walk(scope))
    is_argument = any(isinstance(each, ast.arg) and each.arg == node.id for each in ast.walk(scope))
    plain = stored == len(bound) == len(used) - len(read) and not declared and not is_argument
    return bound if plain and all(_is_unpacked(source, each) for each in read) else []


def _bound(node: ast.AST, name: str) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        yield from (value for target, value in pairs(node) if isinstance(target, ast.Name) and target.id == name)


def _is_unpacked(source: SourceFile, node: ast.Name) -> bool:
    """Return whether a name is only read for a `**`."""
    above = source.parents[node]
    if isinstance(above, ast.keyword):
        return above.arg is None
    return isinstance(above, ast.Dict) and any(
        key is None and value is node for key, value in zip(above.keys, above.values, strict=True)
    )


def with_item(call: cst.Call, name: str, code: str) -> cst.Call:
    """Return `call` with `**{**others, "name": code}` in place of `**others`: right whether or not these have it."""
    args = list(call.args)
    at = next(at for at, each in enumerate(args) if each.star == "**")
    merged = cst.ensure_type(cst.parse_expression(f'{{**_, "{name}": {code}}}'), cst.Dict)
    first = cst.ensure_type(merged.elements[0], cst.StarredDictElement).with_changes(value=args[at].value)
    args[at] = args[at].with_changes(value=merged.with_changes(elements=[first, *merged.elements[1:]]))
    return call.with_changes(args=args)
