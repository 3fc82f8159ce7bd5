"""An argument of one call, set so that the rest of the call stays as it was typed."""

import ast
from enum import Enum

import libcst as cst

__all__ = ["Given", "given", "set_argument"]

Whitespace = cst.SimpleWhitespace | cst.ParenthesizedWhitespace


class Given(Enum):
    """What a call says of one argument now."""

    NOTHING = "nothing"
    LITERAL = "literal"
    EQUAL = "equal"
    ELSEWHERE = "elsewhere"  # by a name, an expression, or whatever `*args` or `**kwargs` hold
    UNPACKED = "unpacked"  # by `**kwargs`, whose contents are known, and in one way at least not as asked


def given(call: ast.Call, name: str, code: str, place: int = 99) -> tuple[Given, ast.expr | None]:
    """Return what `call` gives for the argument `name`, the one at `place` where it is given without its name."""
    value = next((each.value for each in call.keywords if each.arg == name), None)
    if value is None and len(call.args) > place:
        value = call.args[place]
    starred = any(isinstance(each, ast.Starred) for each in call.args) or any(
        each.arg is None for each in call.keywords
    )
    if value is None:
        return (Given.ELSEWHERE if starred else Given.NOTHING), None
    if ast.unparse(value) == code:
        return Given.EQUAL, value
    literal = isinstance(value, ast.Constant) and (not starred or any(each.arg == name for each in call.keywords))
    return (Given.LITERAL if literal else Given.ELSEWHERE), value


def set_argument(call: cst.Call, name: str, code: str, place: int = 99) -> cst.Call:
    """Return `call` with `name=code`, in the place of what it gave for it, else as the last argument."""
    value = cst.parse_expression(code)
    for at, arg in enumerate(call.args):
        named = arg.keyword is not None and arg.keyword.value == name
        if named or (arg.keyword is None and at == place and not arg.star):
            args = [*call.args[:at], arg.with_changes(value=value), *call.args[at + 1 :]]
            return call.with_changes(args=args)
    added = cst.Arg(
        keyword=cst.Name(name),
        value=value,
        equal=cst.AssignEqual(whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace("")),
    )
    if not call.args:
        return call.with_changes(args=[added])
    last, added = _joined(call, added)
    return call.with_changes(args=[*call.args[:-1], last, added])


def _joined(call: cst.Call, added: cst.Arg) -> tuple[cst.Arg, cst.Arg]:
    """Return the last argument, followed by a comma as the others are, and the new one, ended as the last one was."""
    last, between = call.args[-1], _between(call)
    if isinstance(last.comma, cst.Comma):  # a trailing comma, perhaps with a comment behind it
        end = last.comma
        after = _with_comment(between, end.whitespace_after)
        last = last.with_changes(comma=end.with_changes(whitespace_after=after))
        added = added.with_changes(comma=end.with_changes(whitespace_after=_without_comment(end.whitespace_after)))
        return last, added.with_changes(whitespace_after_arg=cst.SimpleWhitespace(""))
    end_of_call = last.whitespace_after_arg
    comma = cst.Comma(whitespace_after=_with_comment(between, end_of_call))
    added = added.with_changes(whitespace_after_arg=_without_comment(end_of_call))
    return last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace("")), added


def _between(call: cst.Call) -> Whitespace:
    """Return what stands between two arguments of the call, without comments."""
    if len(call.args) > 1 and isinstance(call.args[-2].comma, cst.Comma):
        found = _without_comment(call.args[-2].comma.whitespace_after)
        return found if found.empty is False else cst.SimpleWhitespace(" ")
    if isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace):
        return _without_comment(call.whitespace_before_args)
    return cst.SimpleWhitespace(" ")


def _without_comment(space: cst.BaseParenthesizableWhitespace) -> Whitespace:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space if isinstance(space, cst.SimpleWhitespace) else cst.SimpleWhitespace("")
    first = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
    return space.with_changes(first_line=first, empty_lines=[])


def _with_comment(between: Whitespace, comment_of: cst.BaseParenthesizableWhitespace) -> Whitespace:
    """Return `between` with the comment that stood behind the last argument."""
    if not isinstance(comment_of, cst.ParenthesizedWhitespace):
        return between
    said = comment_of.first_line.comment is not None or any(line.comment for line in comment_of.empty_lines)
    if not said:
        return between
    if not isinstance(between, cst.ParenthesizedWhitespace):  # the next argument has to begin a line
        return comment_of
    return between.with_changes(first_line=comment_of.first_line, empty_lines=comment_of.empty_lines)
