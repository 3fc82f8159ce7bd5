"""Models that give the same twice, and code between two calls that changes neither weights nor inputs.

A model is made of layers of torch's and of classes of the user's whose code only computes. What is not known to compute
counts as changing something.
"""

import ast
import re
from collections.abc import Iterable

from flatout.edits.reading.blocks import loads
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.kept_graphs import reached_functions
from flatout.edits.reading.graphs.number_uses import TENSOR_METHODS, is_model
from flatout.edits.reading.graphs.recorded_values import ENDING, is_torch_function
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.quiet_code import is_builtin, is_counter
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.writes.changed_meanings import changed_meaning

__all__ = ["changes_something", "free_names", "gives_other", "is_plain_argument"]

_DRAWS = re.compile(
    r"\w*[Dd]rop\w*|\w*(Batch|Instance|Sync)Norm\w*|\w*[Rr][Rr]e[Ll][Uu]\w*|\w*rand\w*|\w*normal_?|\w*sampl\w*"
    r"|bernoulli_?|multinomial|uniform_?|exponential_?|poisson|gumbel\w*|spectral_norm|\w*Transformer\w*"
    r"|Multihead\w*|time\w*|perf_counter|\w*seed\w*|datetime|next|iter|input|open|print|id|hash"
)
_LAYERS = re.compile(r"Parameter(List|Dict)?|Module(List|Dict)?|[A-Z]\w*")
_BUILTINS = words(
    "len range zip enumerate reversed list tuple dict int float bool max min sum abs isinstance super round"
)
_DOING = (
    ast.Global
    | ast.Nonlocal
    | ast.Yield
    | ast.YieldFrom
    | ast.Await
    | ast.Delete
    | ast.Import
    | ast.ImportFrom
    | ast.ClassDef
)
_OF_GRADIENTS = words("backward zero_grad clip_grad_norm_ clip_grad_value_")


def gives_other(project: Project, source: SourceFile, call: ast.Call) -> str:
    """Return why a call of a model may give something else, or do something more, a second time; "" where it cannot."""
    made = [] if source.names.dotted(call.func) else Flow(project).origins(source, call.func)
    meaning = changed_meaning(project)
    if meaning:
        return meaning
    if not made:
        return f"what {ast.unparse(call.func)} is cannot be told"
    for place, maker in made:
        layers = [node for node in ast.walk(maker) if isinstance(node, ast.Call)]
        if not all(_is_layer(project, place, each) for each in layers):
            return f"{ast.unparse(maker.func)}() may make a model that draws or counts"
    for place, function in reached_functions(project, [call.func]):
        if function.name in ("__getitem__", "__iter__", "__next__", "__getitems__", "__enter__", "__exit__"):
            continue
        found = changes_something(project, place, function.body, also=words("super"), forward=True)
        if found:
            return f"{function.name}() may draw or count: {found}"
    given = [*call.args, *(each.value for each in call.keywords)]
    read = {each.attr for node in given for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    if not all(map(is_plain_argument, given)) or read & project.functions.keys():
        return "what it is given is made anew for each call"
    return ""


def free_names(project: Project, call: ast.Call) -> set[str]:
    """Return the variables that the code behind a call of a model reads, and does not bind itself."""
    found: set[str] = set()
    for _, function in reached_functions(project, [call.func]):
        own = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        own |= {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
        found |= loads([function]) - own
    return found


def _is_layer(project: Project, source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call makes a layer of torch's, or a module of the user's whose parts are such layers."""
    dotted, name = source.names.dotted(call.func), last_name(call.func)
    if is_builtin(source, call.func, _BUILTINS) or (isinstance(call.func, ast.Attribute) and name in TENSOR_METHODS):
        return True
    if dotted.startswith("torch.") or name not in project.classes:
        return dotted.startswith("torch.nn.") and not _DRAWS.fullmatch(name)
    for place, made in project.classes[name]:
        layers = [
            node for node in ast.walk(made) if isinstance(node, ast.Call) and _LAYERS.fullmatch(last_name(node.func))
        ]
        if not all(_is_layer(project, place, each) for each in layers if last_name(each.func) != name):
            return False
        if not all(place.names.dotted(each).startswith("torch.nn.") for each in made.bases):
            return False
    return True


def is_plain_argument(node: ast.expr) -> bool:
    """Return whether an argument is a variable, or a part of one, that is the same each time it is written."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    made = ast.NamedExpr | ast.Lambda | ast.Await | ast.Yield | ast.GeneratorExp
    if any(isinstance(each, made) for each in ast.walk(node)):
        return False
    return all(isinstance(each.func, ast.Attribute) and each.func.attr in TENSOR_METHODS for each in calls)


def changes_something(
    project: Project, source: SourceFile, nodes: Iterable[ast.AST], *, also: frozenset[str], forward: bool = False
) -> str:
    """Return what below `nodes` may change something or draw; "" where all of it only computes.

    `also`: functions and methods that may be called besides. A `forward` may call the user's functions, which are
    looked at by themselves.
    """
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Call):
            found = not _computes(project, source, node, also, forward=forward)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and not forward:  # log["loss"] = ...
            found = not (isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str))
        elif isinstance(node, ast.Attribute | ast.Subscript):
            found = isinstance(node.ctx, ast.Store | ast.Del)
        elif isinstance(node, ast.AugAssign):
            found = not is_counter(source, node)
        else:
            found = isinstance(node, _DOING)
        if found:
            return f"{ast.unparse(node.func)}()" if isinstance(node, ast.Call) else ast.unparse(node).split("\n")[0]
    return ""


def _computes(project: Project, source: SourceFile, call: ast.Call, also: frozenset[str], *, forward: bool) -> bool:
    name, dotted = last_name(call.func), source.names.dotted(call.func)
    if any(each.arg in ("out", "inplace", None) for each in call.keywords):
        return False
    if name in also and not (dotted and name not in _OF_GRADIENTS):
        return True
    if name in project.functions and not dotted:
        return forward or (name == "forward" and isinstance(call.func, ast.Attribute))
    if _DRAWS.fullmatch(name):
        return False
    if is_builtin(source, call.func, _BUILTINS):
        return True
    if dotted:
        return is_torch_function(source, call.func) or dotted.startswith("math.") or dotted == "torch.no_grad"
    if isinstance(call.func, ast.Attribute) and name in TENSOR_METHODS | ENDING:
        return True
    return is_model(project, source, call.func)
