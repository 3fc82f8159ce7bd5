"""State dicts of models: what makes them, copies and loads them, and what else has methods of these names."""

import ast
import re
from collections.abc import Iterator

from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.dataflow import Flow, Origin
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.user_classes import names_below

__all__ = ["bound_to", "is_deepcopy", "loads_it", "state_of", "unlike_module"]

_OF_MODULES = "parameters|named_parameters|modules|named_modules|children|buffers|named_buffers"
_MODULES = ("torch.nn.", "torchvision.models.")


def is_deepcopy(source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call is `copy.deepcopy(something)`."""
    return source.names.dotted(call.func) == "copy.deepcopy" and len(call.args) == 1 and not call.keywords


def state_of(node: ast.expr) -> ast.expr | None:
    """Return `model` of `model.state_dict()`."""
    method = isinstance(node, ast.Call) and not node.args and not node.keywords and node.func
    return method.value if isinstance(method, ast.Attribute) and method.attr == "state_dict" else None


def loads_it(around: ast.AST, given: ast.AST) -> bool:
    """Return whether a call is `model.load_state_dict(given)`, which copies."""
    if not isinstance(around, ast.Call) or name_called(around) != "load_state_dict" or len(around.args) != 1:
        return False
    named = {each.arg for each in around.keywords}
    return around.args[0] is given and isinstance(around.func, ast.Attribute) and named <= {"strict"}


def bound_to(around: ast.AST, node: ast.expr) -> str:
    """Return the one name that a statement binds to a node."""
    targets = around.targets if isinstance(around, ast.Assign) else [getattr(around, "target", None)]
    is_statement = isinstance(around, ast.Assign | ast.AnnAssign) and around.value is node
    return targets[0].id if is_statement and len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def unlike_module(project: Project, source: SourceFile, model: ast.expr, *, surely: bool) -> str:
    """Return why something may be no plain module of torch's; `surely`: seen by how it is used elsewhere, too."""
    text = ast.unparse(model)
    made = list(_made(Flow(project), source, model))
    own = {each for name in ("state_dict", "load_state_dict") for each in _owners(project, name)}
    kinds = {name_called(call) for _, call in made}
    if own and (not made or kinds & {below for each in own for below in names_below(project, each)}):
        return f"{text} may have a state_dict() or load_state_dict() of its own"
    if any(place.names.dotted(call.func).startswith("torch.optim") for place, call in made):
        return f"{text} is an optimizer, which keeps what it is given"
    last = re.escape(text.rpartition(".")[2])
    modules = names_below(project, "Module")
    known = [name_called(call) in modules or place.names.dotted(call.func).startswith(_MODULES) for place, call in made]
    if surely and not (known and all(known)) and not re.search(rf"(?<!\w){last}\.({_OF_MODULES})\(", project.mentions):
        return f"nothing shows that {text} is a model: an optimizer keeps what it is given"
    return ""


def _made(flow: Flow, source: SourceFile, model: ast.expr, most: int = 3) -> Iterator[Origin]:
    """Yield the calls that may have made a model; of a copy, those that made what it is of."""
    for place, call in flow.origins(source, model):
        if is_deepcopy(place, call) and most:
            yield from _made(flow, place, call.args[0], most - 1)
        else:
            yield place, call


def _owners(project: Project, method: str) -> Iterator[str]:
    for _, node in project.nodes(ast.ClassDef):
        if any(isinstance(each, Function) and each.name == method for each in node.body):
            yield node.name
