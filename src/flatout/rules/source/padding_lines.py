"""The line of the user's source that pads every sample to one length, as far as the source tells it."""

import ast
from collections.abc import Iterator

from flatout.rules.source.source_code import Function, ancestors, parsed
from flatout.schema.run import Frame, Run

__all__ = ["padding_line"]

_MADE_EMPTY = frozenset({"zeros", "full", "ones", "zeros_like", "full_like", "new_zeros", "new_full"})
_PADS = frozenset({"pad", "pad_sequence", "ljust", "rjust", "zfill"})
_MOST_FILES = 20


def padding_line(run: Run) -> Frame | None:
    """Return where samples are padded to a length that no batch decides; None where the source shows no such line.

    A tokenizer that is told to is preferred to a list that is made longer, and that to an array that rows are put into.
    """
    found = [place for file in _files(run) for place in _places(file)]
    return min(found, key=lambda each: each[0])[1] if found else None


def _files(run: Run) -> list[str]:
    frames = [frame for loader in run.loaders for frame in (loader.created_at, loader.iterated_at) if frame]
    if run.causes:
        frames += [frame for cost in run.causes.lines for frame in cost.stack]
        frames += [padding.place for padding in run.causes.padding if padding.place]
    return list(dict.fromkeys(frame.file for frame in frames))[:_MOST_FILES]


def _places(file: str) -> Iterator[tuple[int, Frame]]:
    tree = parsed(file)
    if tree is None:
        return
    for node in ast.walk(tree):
        rank = _rank(node)
        if rank is None:
            continue
        place = Frame(file, getattr(node, "lineno", 1), "")
        around = ancestors(place)
        function = next((each for each in around if isinstance(each, Function)), None)
        if rank == 1 and _of_the_batch(node, function):
            continue
        if rank == 2 and not _is_filled(node, around, function or tree):
            continue
        yield rank, Frame(file, place.line, _name(around))


def _rank(node: ast.AST) -> int | None:
    """Return 0 for a call that is told to pad, 1 for a sequence made longer, 2 for an array of one width; else None."""
    if isinstance(node, ast.Call):
        told = {each.arg: each.value.value for each in node.keywords if isinstance(each.value, ast.Constant)}
        if told.get("padding") == "max_length" or told.get("pad_to_max_length") is True:
            return 0
        name = _called(node)
        if name in _PADS and any(_lacks(part) for part in ast.walk(node)):
            return 1
        return 2 if name in _MADE_EMPTY else None
    multiplies = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return 1 if multiplies and any(_lacks(side) for side in (node.left, node.right)) else None  # type: ignore[attr-defined]


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _lacks(node: ast.AST) -> bool:
    """Return whether `node` is what a length falls short of another number: `MAX_LEN - len(row)`."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _is_length(node.right)


def _is_length(node: ast.AST) -> bool:
    text = ast.unparse(node)
    return "len(" in text or ".shape[" in text or ".size(" in text


def _of_the_batch(node: ast.AST, function: ast.AST | None) -> bool:
    """Return whether the length that is padded to is the longest of those at hand."""
    wanted = next((part.left for part in ast.walk(node) if _lacks(part)), None)  # type: ignore[attr-defined]
    if wanted is None:
        return False
    if not isinstance(wanted, ast.Name) or function is None:
        return "max(" in ast.unparse(wanted)
    assigned = (each for each in ast.walk(function) if isinstance(each, ast.Assign))
    values = [each.value for each in assigned if any(ast.unparse(target) == wanted.id for target in each.targets)]
    return any("max(" in ast.unparse(value) or "amax" in ast.unparse(value) for value in values)


def _is_filled(made: ast.AST, around: tuple[ast.AST, ...], function: ast.AST) -> bool:
    """Return whether the array is given a name, and rows of it get values up to their own length."""
    statement = around[0] if around else None
    if not isinstance(statement, ast.Assign) or _sizes_of_the_batch(made, function):
        return False
    names = {ast.unparse(target) for target in statement.targets}
    names |= set(_rows_of(names, function))
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in names:
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if any(isinstance(part, ast.Slice) and part.upper is not None and part.lower is None for part in parts):
                return True
    return False


def _rows_of(names: set[str], function: ast.AST) -> Iterator[str]:
    """Yield the variables that loops give the rows of an array in `names` to: `for row, text in zip(out, texts)`."""
    for loop in ast.walk(function):
        if isinstance(loop, ast.For):
            over = loop.iter.args if isinstance(loop.iter, ast.Call) else [loop.iter]
            if any(ast.unparse(each) in names for each in over):
                yield from (part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name))


def _sizes_of_the_batch(made: ast.AST, function: ast.AST) -> bool:
    names = {part.id for part in ast.walk(made) if isinstance(part, ast.Name)}
    longest = {
        ast.unparse(target)
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and "max(" in ast.unparse(each.value)
        for target in each.targets
    }
    return bool(names & longest) or "max(" in ast.unparse(made)


def _name(around: tuple[ast.AST, ...]) -> str:
    """Return the name of the function that `around` ends in, with its class, as Python names it."""
    named = [
        each for each in reversed(around) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    text = ""
    for each in named:
        text += each.name + ("." if isinstance(each, ast.ClassDef) else ".<locals>.")
    return text.removesuffix(".").removesuffix(".<locals>") or "<module>"
