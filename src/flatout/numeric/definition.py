"""The definition of a function as its file has it, and code made of a changed one."""

import __future__

import ast
import inspect
import linecache
import types
from collections.abc import Iterator, Sequence

from flatout.numeric.subset import Function

__all__ = ["code_of", "definition_of"]

_FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


def definition_of(function: types.FunctionType) -> Function | None:
    """Return the syntax tree of a function, on the lines of its file; None where the source does not show it."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines or code.co_name == "<lambda>":
        return None
    text = "".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))
    shift = code.co_firstlineno - 1
    if text[:1].isspace():  # in a class or a function: columns stay what they are
        text, shift = f"if True:\n{text}", shift - 1
    tree = ast.parse(text)
    body = tree.body[0].body if isinstance(tree.body[0], ast.If) else tree.body
    found = body[0] if len(body) == 1 else None
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) or found.name != code.co_name:
        return None
    found.decorator_list = []
    ast.increment_lineno(found, shift)
    return found if _is_of("".join(lines), code) else None


def _is_of(text: str, code: types.CodeType) -> bool:
    """Return whether a file's text is what a function's code was made of, and not what the file has held since."""
    whole = compile(text, code.co_filename, "exec", dont_inherit=True)
    return any(_like(each, code) for each in _codes_in(whole) if each.co_firstlineno == code.co_firstlineno)


def _codes_in(whole: types.CodeType) -> Iterator[types.CodeType]:
    for each in whole.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes_in(each)


def _like(one: types.CodeType, other: types.CodeType) -> bool:
    """Return whether two functions do the same, as far as their code tells."""
    constants = zip(one.co_consts, other.co_consts, strict=False)
    return (
        one.co_code == other.co_code
        and one.co_names == other.co_names
        and one.co_varnames == other.co_varnames
        and len(one.co_consts) == len(other.co_consts)
        and all(
            _like(mine, theirs)
            if isinstance(mine, types.CodeType) and isinstance(theirs, types.CodeType)
            else mine == theirs
            for mine, theirs in constants
        )
    )


def code_of(tree: Function, function: types.FunctionType, more: Sequence[str]) -> types.CodeType:
    """Return the code of a definition, which sees the variables around `function` and the names `more`."""
    outside = [*function.__code__.co_freevars, *more]
    arguments = ast.arguments([], [ast.arg(each) for each in outside], None, [], [], None, [])
    first = function.__code__.co_firstlineno  # that of its first decorator
    above = ast.Constant(None, lineno=first, end_lineno=first, col_offset=0, end_col_offset=0)
    tree.decorator_list = [above] if first < tree.lineno else []
    plain = ast.FunctionDef("around", arguments, [tree], [])
    tree.args.defaults, tree.args.kw_defaults, tree.returns = (
        [ast.Constant(None)] * len(tree.args.defaults),
        [None if each is None else ast.Constant(None) for each in tree.args.kw_defaults],
        None,
    )
    for each in ast.walk(tree.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    module = ast.fix_missing_locations(ast.Module([plain], []))
    flags = function.__code__.co_flags & _FUTURE
    whole = compile(module, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    around = next(each for each in whole.co_consts if isinstance(each, types.CodeType))
    return next(each for each in around.co_consts if isinstance(each, types.CodeType) and each.co_name == tree.name)
