"""Code that gives functions, operators or calls of modules another meaning than they have by their names."""

import ast
import functools

from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.own_meanings import own_operator
from flatout.edits.reading.purity.pure_calls import words

__all__ = ["changed_meaning"]

_OF_OBJECTS = words(
    "forward __call__ __class__ parameters named_parameters buffers modules backward step zero_grad item detach "
    "train eval"
)
_HOOKS = ("forward_hook", "forward_pre_hook", "MethodType", "mock", "monkeypatch")
_SETTERS = ("setattr", "patch", "delattr")


@functools.lru_cache(maxsize=4)
def changed_meaning(project: Project) -> str:
    """Return what in a project makes names mean something else, or sees each call of a module; "" for nothing."""
    operator = own_operator(project)
    if operator:
        return f"{operator} of the user's runs where no call is written"
    hook = next((each for each in _HOOKS if each in project.mentions), "")
    if hook:
        return f"{hook} may do something in each call"
    for source, node in project.nodes(ast.Attribute, ast.Call):
        if isinstance(node, ast.Call):
            found = last_name(node.func) in _SETTERS or _is_dynamic(node)
        else:
            is_set = not isinstance(node.ctx, ast.Load)
            found = is_set and (node.attr in _OF_OBJECTS or bool(source.names.dotted(node)))
        if found:
            return source.at(node, f"{ast.unparse(node)} may give a name another meaning")
    return ""


def _is_dynamic(call: ast.Call) -> bool:
    """Return whether `getattr` is given a name that is put together when the script runs."""
    named = [*call.args, None][1:2]
    return last_name(call.func) == "getattr" and not (named and isinstance(named[0], ast.Constant))
