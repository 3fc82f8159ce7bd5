"""Projects in which nothing writes into tensors in place, and values of a function that are only read there.

Where both hold, a tensor may stand for its copy: nobody writes into either, now or before a backward pass.
"""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.kept_graphs import reached_functions
from flatout.edits.reading.in_place import is_in_place
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import PURE_FUNCTIONS, PURE_METHODS, PlainKind, words
from flatout.edits.reading.quiet_code import is_counter
from flatout.edits.reading.source_file import Function
from flatout.edits.reading.writes.changed_meanings import changed_meaning, traced_somewhere
from flatout.edits.reading.writes.still_models import changes_something

__all__ = ["is_only_read", "written_somewhere"]

_HARMLESS = words("zero_grad requires_grad_ clip_grad_norm_ clip_grad_value_")
_SPECIAL = words("__getitem__ __getitems__ __iter__ __next__ __enter__ __exit__ __init__")
_SIZES = words("shape dtype device ndim")
_LAYERS = (
    "Linear", "Conv", "BatchNorm", "LayerNorm", "GroupNorm", "LSTM", "GRU", "MultiheadAttention", "Embedding",
)  # fmt: skip
_WATCHING = (
    "forward_hook",
    "forward_pre_hook",
    "grad_fn",
    "retain_grad",
    "running_mean",
    "running_var",
    "buffers()",
    "register_buffer",
    "data_ptr",
    "_version",
    "__torch_",
    "TorchFunc",
)


def written_somewhere(place: EditPlace) -> str:
    """Return what may write into a tensor that a function reads, or see whose memory it is; "" for nothing."""
    project, scope = place.project, place.source.scope(place.statement)
    if not isinstance(scope, Function):
        return "it stands in no function, so that anything may write into it"
    watching = next((each for each in _WATCHING if each in project.mentions), "") or changed_meaning(project)
    watching = watching or traced_somewhere(project)
    if watching:
        return f"{watching} may see whose memory it is"
    changed = changes_something(project, place.source, scope.body, also=words("drop dropout super"), forward=True)
    if changed:
        return f"{changed} may write into it"
    for source, function in reached_functions(project, [scope]):
        if function.name not in _SPECIAL:
            changed = changes_something(project, source, function.body, also=words("drop dropout super"), forward=True)
            if changed:
                return source.at(function, f"{changed} may write into it")
    return _written(project)


def _written(project: Project) -> str:
    """Return what in a project writes into tensors in place, "" for nothing."""
    for source, node in project.nodes(ast.Call, ast.AugAssign, ast.Subscript, ast.Attribute):
        if isinstance(node, ast.Call):
            named = {each.arg: ast.unparse(each.value) for each in node.keywords}
            method = is_in_place(last_name(node.func)) and last_name(node.func) not in _HARMLESS
            found = (method and not source.names.dotted(node.func).startswith("torch.nn.init.")) or "out" in named
            found = found or named.get("inplace", "False") != "False"
        elif isinstance(node, ast.AugAssign):
            found = not is_counter(source, node)
        elif isinstance(node, ast.Subscript):
            is_text = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
            found = isinstance(node.ctx, ast.Store | ast.Del) and not is_text
        else:
            found = node.attr == "data" and isinstance(node.ctx, ast.Store)
        if found:
            return source.at(node, f"{ast.unparse(node)} may write into it")
    return ""


def is_only_read(place: EditPlace, node: ast.expr) -> bool:
    """Return whether all that is done with a value at its place makes something new of it."""
    source = place.source
    above = source.parents[node]
    match above:
        case ast.BinOp():
            return not isinstance(above.op, ast.Mod)
        case ast.UnaryOp():
            return True
        case ast.Attribute() if above.attr in _SIZES:
            return True
        case ast.Attribute():
            call = source.parents[above]
            known = PURE_METHODS.get(above.attr, (0, PlainKind.PLAIN))[1]
            is_called = isinstance(call, ast.Call) and call.func is above
            return is_called and known is not PlainKind.PLAIN and above.attr not in place.project.functions
        case ast.Call() if node is not above.func:
            return _is_read_by(place, above)
    return False


def _is_read_by(place: EditPlace, call: ast.Call) -> bool:
    """Return whether a call makes something new of what it is given: one of torch's, or of a layer."""
    dotted = place.source.names.dotted(call.func)
    if dotted:
        known = PURE_FUNCTIONS.get(dotted, (0, PlainKind.PLAIN))[1]
        return dotted.startswith("torch.") and known is not PlainKind.PLAIN
    made = attribute_values(place.project, place.source, call.func)
    dots = [source.names.dotted(each.func) for source, each in made if isinstance(each, ast.Call)]
    layers = [each.startswith("torch.nn.") and any(kind in each for kind in _LAYERS) for each in dots]
    return bool(made) and len(dots) == len(made) and all(layers)
