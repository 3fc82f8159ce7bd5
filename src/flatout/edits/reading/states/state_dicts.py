"""State dicts of models: what makes them, copies and loads them, and what gives these names another meaning."""

import ast
import re
from collections.abc import Iterator

from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.dataflow import Flow, Origin
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.own_meanings import own_operator, runs_meanwhile
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.user_classes import names_below

__all__ = [
    "bound_to",
    "cloned_value",
    "is_deepcopy",
    "is_made_as_module",
    "is_seen",
    "loads_it",
    "state_of",
    "unsettled",
]

_MODULES = ("torch.nn.", "torchvision.models.")
_METHODS = ("state_dict", "load_state_dict")
_SETTERS = ("setattr", "object", "patch", "type")
_OWN_STATE = re.compile(
    r"_state_dict_hook|state_dict_pre_hook|state_dict_post_hook|_extra_state|_load_from_state_dict|_save_to_state_dict|"
    r"swap_module_params|FullyShardedDataParallel|fully_shard|deepspeed|share_memory|torch\.multiprocessing|"
    r"settrace|setprofile|sys\.path|importlib|__import__|runpy"
)  # words of projects in which a state dict is another one, weights change at any time, or code is not read
_NAMES_SEEN = re.compile(r"(?<![\w.])(?:locals|globals|eval|exec)\b|\bvars\(\)|f_locals|_getframe|currentframe")
_MODULES_SEEN = re.compile(r"__main__|sys\.modules|\bvars\(|__dict__")  # by which names of a module are found


def is_deepcopy(source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call is `copy.deepcopy(something)`."""
    return source.names.dotted(call.func) == "copy.deepcopy" and len(call.args) == 1 and not call.keywords


def state_of(node: ast.expr) -> ast.expr | None:
    """Return `model` of `model.state_dict()`."""
    method = isinstance(node, ast.Call) and not node.args and not node.keywords and node.func
    return method.value if isinstance(method, ast.Attribute) and method.attr == "state_dict" else None


def cloned_value(source: SourceFile, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Return `model` and `v` of `{k: v.clone() for k, v in model.state_dict().items()}`, however it copies."""
    if not isinstance(node, ast.DictComp) or len(node.generators) != 1:
        return None
    (loop,) = node.generators
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    items = loop.iter.func if isinstance(loop.iter, ast.Call) and not loop.iter.args else None
    state = state_of(items.value) if isinstance(items, ast.Attribute) and items.attr == "items" else None
    if state is None or len(names) != 2 or not all(isinstance(each, ast.Name) for each in names) or loop.is_async:
        return None
    if ast.unparse(node.key) != ast.unparse(names[0]):  # other keys may be those of other weights of the same model
        return None
    value, cloned = ast.unparse(names[1]), False
    inner: ast.expr = node.value
    while isinstance(inner, ast.Call):
        call = inner
        if is_deepcopy(source, call):
            inner, cloned = call.args[0], True
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("clone", "detach") and not _given(call):
            inner, cloned = call.func.value, cloned or call.func.attr == "clone"
        else:
            return None
    return (state, inner) if cloned and ast.unparse(inner) == value else None


def _given(call: ast.Call) -> bool:
    return bool(call.args or call.keywords)


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


def is_made_as_module(project: Project, source: SourceFile, model: ast.expr) -> bool:
    """Return whether every call that is seen to make a model makes a module of torch's, or one of the user's."""
    modules = names_below(project, "Module")
    made = list(_made(Flow(project), source, model))
    known = [name_called(call) in modules or place.names.dotted(call.func).startswith(_MODULES) for place, call in made]
    return bool(known) and all(known)


def _made(flow: Flow, source: SourceFile, model: ast.expr, most: int = 3) -> Iterator[Origin]:
    """Yield the calls that may have made a model; of a copy, those that made what it is of."""
    for place, call in flow.origins(source, model):
        if is_deepcopy(place, call) and most:
            yield from _made(flow, place, call.args[0], most - 1)
        else:
            yield place, call


def unsettled(project: Project) -> str:
    """Return why state dicts, or operations with what they hold, may be the user's own, or names be read unseen."""
    if project.notes:
        return f"not all code is read: {project.notes[0]}"
    text = project.mentions
    for pattern, what in (
        (_OWN_STATE, "a state dict may be another one, change at any time, or code not be seen"),
        (_NAMES_SEEN, "names may be read without being named"),
    ):
        found = pattern.search(text)
        if found:
            return f"{found.group()} is used here: {what}"
    operator, module = own_operator(project), runs_meanwhile(project)
    if operator:
        return f"{operator} is used here: operators may run code of the user's"
    return f"{module} is used here: weights may change at any time" if module else next(_renamed(project), "")


def _renamed(project: Project) -> Iterator[str]:
    for _, node in project.nodes(ast.Import, ast.ImportFrom):
        if any(each.name == "*" for each in node.names):
            yield "names are imported by * here: they may be any"
    kinds = (ast.Name, ast.Attribute, ast.Constant, ast.keyword, ast.FunctionDef, ast.AsyncFunctionDef)
    for source, node in project.nodes(*kinds):
        name = _named(source, node)
        if name in _METHODS:
            yield f"{name} is a name of the user's here: it may do something else"
        elif name == "assign":
            yield "assign=True may be given here: a model keeps what it is given then"


def _named(source: SourceFile, node: ast.AST) -> object:
    """Return what a node gives a meaning to: by binding it, as a string, or as the name of an argument."""
    if isinstance(node, ast.keyword):
        return node.arg
    if isinstance(node, Function):
        return node.name
    if isinstance(node, ast.Constant):
        is_set = isinstance(around := source.parents[node], ast.Call) and name_called(around) in _SETTERS
        return node.value if is_set or node.value != "state_dict" else None  # that is a usual key of checkpoints
    if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return node.id if isinstance(node, ast.Name) else node.attr
    return None


def is_seen(project: Project, source: SourceFile) -> bool:
    """Return whether names of a file may be read by others: it is no script, or it is imported or found elsewhere."""
    stem = source.path.stem
    if source is not project.script or _MODULES_SEEN.search(project.mentions):
        return True
    for _, node in project.nodes(ast.Import, ast.ImportFrom):
        named = [getattr(node, "module", "") or "", *(each.name for each in node.names)]
        if any(stem in each.split(".") for each in named):
            return True
    return False
