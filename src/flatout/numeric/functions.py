"""A function with a question in it: is this to be run by Python, or has a compiled form done it already?

Where a function as a whole has a compiled form, the question is all that is left of it beside the function as it was;
else it stands before each loop that has one. The function keeps its arguments, defaults, closure, lines and name.
"""

import ast
import functools
import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from flatout.numeric import served
from flatout.numeric.definition import code_of, definition_of
from flatout.numeric.hot_code import CompiledResult, HotCode
from flatout.numeric.shared_kinds import share
from flatout.numeric.subset import Function, Unit, assigned, must_run, outer_names, units
from flatout.numeric.surroundings import MISSING, Surroundings

__all__ = ["with_compiled"]

F = TypeVar("F", bound=Callable[..., Any])
_ASK, _ANSWER, _PLAIN, _RESULT = "flatout_ask_{}_", "flatout_answer_{}_", "flatout_plain_", "flatout_result_"
_LOCALS, _TUPLE = "flatout_locals_", "flatout_tuple_"

_pieces: dict[tuple[str, int], tuple[HotCode, Surroundings]] = {}
"""All of this process, and of those that it is forked from.

Functions hold keys alone, so that none of them changes by itself, and one that is sent to another process finds nothing
there, and is Python's.
"""
_here = os.urandom(8).hex()


def with_compiled(function: F) -> F:
    """Return `function`, with its numeric part compiled by numba where that is sure to give the same results.

    Without numba, or where nothing in it has a compiled form, it is returned as it is.
    """
    name = getattr(function, "__qualname__", str(function))
    try:
        return _with_compiled(function, name)
    except Exception as error:  # whatever is wrong here, the function runs as it is written
        served.leaves(name, f"{type(error).__name__}: {error}".splitlines()[0])
        return function


def _with_compiled(function: F, name: str) -> F:
    if not isinstance(function, types.FunctionType):
        served.leaves(name, "it is no plain function")
        return function
    if not _has_numba():
        served.leaves(name, "it needs numba: pip install flatout[numba]")
        return function
    tree = definition_of(function)
    found = units(tree) if tree is not None else []
    if tree is None or not found:
        served.leaves(name, "nothing in it has a compiled form" if tree is not None else "its source cannot be read")
        return function
    made = _as_a_whole(function, tree, name) if found[0].loop is None else _with_loops(function, tree, found, name)
    return made  # type: ignore[no-any-return]


def _has_numba() -> bool:
    from importlib.util import find_spec

    import numpy as np

    return find_spec("numba") is not None and int(np.__version__.split(".")[0]) >= 2


def _piece(name: str, body: Sequence[ast.stmt], variables: Sequence[str], function: Any, own: set[str]) -> Any:
    """Return the key of a new piece; `own` are the variables of the function, which are none of its surroundings."""
    outer = outer_names(body, own)
    piece, key = HotCode(name, body, variables, outer), (_here, len(_pieces))
    _pieces[key] = (piece, Surroundings(function, outer))
    share(piece)
    return key


def _question(key: tuple[str, int], variables: Sequence[str], stored: Sequence[str] | None) -> Callable[..., Any]:
    """Return what asks for a piece's work; `stored` are the variables that it leaves, None where it returns."""

    def ask(here: Mapping[str, Any]) -> Any:
        """Return a tuple of what is left or returned; else Python is to run it, and is asked for it where not None."""
        found = _pieces.get(key)
        if found is None:
            return None
        piece, around = found
        get = here.get
        answer = piece.begin([*[get(each, MISSING) for each in variables], *around.values(get("self"))])
        if answer is None:
            return None
        if isinstance(answer, CompiledResult):
            return (answer.value,) if stored is None else answer.value if stored else ()
        if stored is None:
            return answer.ended
        return lambda after: answer.ended(tuple(after.get(each, MISSING) for each in stored) if stored else None)

    return ask


# -- a function as a whole --------------------------------------------------------------------------------------------


def _as_a_whole(function: types.FunctionType, tree: Function, name: str) -> Any:
    """Return the function with nothing but the question in it, and a call of the function as it was."""
    names = [each.arg for each in tree.args.args]
    key = _piece(name, tree.body, names, function, {*names, *assigned(tree.body)})
    plain = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    ask, answer = _ASK.format(0), _ANSWER.format(0)
    lines = [
        f"{answer} = {ask}({_LOCALS}())",
        f"if {answer}.__class__ is {_TUPLE}:",
        f"    return {answer}[0]",
        f"{_RESULT} = {_PLAIN}({', '.join(names)})",
        f"if {answer} is not None:",
        f"    {answer}({_RESULT})",
        f"return {_RESULT}",
    ]
    body = ast.parse("\n".join(lines)).body
    for node in (each for statement in body for each in ast.walk(statement)):
        ast.copy_location(node, tree)
    tree.body = body
    return _rebuilt(function, tree, {ask: _question(key, names, None), _PLAIN: plain})


# -- loops of a function ----------------------------------------------------------------------------------------------


def _with_loops(function: types.FunctionType, tree: Function, found: Sequence[Unit], name: str) -> Any:
    """Return the function with a question before each of its loops."""
    questions: dict[str, Any] = {}
    for number, unit in enumerate(found):
        assert unit.loop is not None
        own = {each.id for each in ast.walk(unit.loop) if isinstance(each, ast.Name)} & _variables(tree)
        variables = sorted(own - {"self"})
        loop = ast.parse(ast.unparse(unit.loop)).body[0]
        assert isinstance(loop, ast.For | ast.While)
        if unit.stored:
            must_run(loop)
        left = ast.Tuple([ast.Name(each, ast.Load()) for each in unit.stored], ast.Load())
        body = [loop, ast.Return(left if unit.stored else None)]
        key = _piece(f"{name} (line {unit.loop.lineno})", body, variables, function, own)
        questions[_ASK.format(number)] = _question(key, variables, unit.stored)
        _ask_first(tree, unit, number)
    return _rebuilt(function, tree, questions)


def _variables(tree: Function) -> set[str]:
    arguments = tree.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {each.arg for each in named if each is not None} | assigned(tree.body)


def _ask_first(tree: Function, unit: Unit, number: int) -> None:
    """Put the question before a loop, and the loop where the answer is no tuple."""
    loop, answer = unit.loop, _ANSWER.format(number)
    assert loop is not None
    take = f"({', '.join(unit.stored)},) = {answer}" if unit.stored else "pass"
    lines = [
        f"{answer} = {_ASK.format(number)}({_LOCALS}())",
        f"if {answer}.__class__ is {_TUPLE}:",
        f"    {take}",
        "else:",
        f"    if {answer} is not None:",
        f"        {answer}({_LOCALS}())",
    ]
    made = ast.parse("\n".join(lines)).body
    for node in (each for statement in made for each in ast.walk(statement)):
        ast.copy_location(node, loop)
    branch = made[1]
    assert isinstance(branch, ast.If)
    branch.orelse.insert(0, loop)
    blocks = [getattr(node, each, None) for node in ast.walk(tree) for each in ("body", "orelse", "finalbody")]
    for block in blocks:
        at = next((at for at, each in enumerate(block) if each is loop), -1) if isinstance(block, list) else -1
        if isinstance(block, list) and at >= 0:
            block[at : at + 1] = made
            return


def _rebuilt(function: types.FunctionType, tree: Function, more: Mapping[str, Any]) -> Any:
    """Return the function with the body of `tree`, which sees the names `more`, and all else that it has."""
    more = {**more, _LOCALS: locals, _TUPLE: tuple}
    code = code_of(tree, function, list(more))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {name: types.CellType(value) for name, value in more.items()}
    code = code.replace(co_qualname=function.__code__.co_qualname)
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(made, function)
