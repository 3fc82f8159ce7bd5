"""Code that gives functions, operators or calls of modules another meaning than they have by their names."""

import ast
import functools

from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.own_meanings import own_operator
from flatout.edits.reading.purity.pure_calls import words

__all__ = ["changed_meaning", "traced_somewhere"]

_OF_OBJECTS = words(
    "forward __call__ __class__ parameters named_parameters buffers modules backward step zero_grad item detach "
    "train eval"
)
_HOOKS = ("forward_hook", "forward_pre_hook", "MethodType", "mock", "monkeypatch")
_TRACED = (
    "torch.jit", "torch.onnx", "torch.export", "torch.func", "torch.fx", "torch.compile", "torch.vmap", "functorch",
    "torch.cuda.graph", "torch.cuda.make_graphed_callables", "torch.ao", "torch.quantization",
)  # fmt: skip
_TRACING = words(
    "compile add_graph make_fx vmap log_graph to_torchscript to_onnx torch_compile symbolic_trace CUDAGraph "
    "FlopCountAnalysis create_feature_extractor"
)
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


@functools.lru_cache(maxsize=4)
def traced_somewhere(project: Project) -> str:
    """Return what in a project traces or compiles code, where a question that is asked at run time has no place."""
    for source, node in project.nodes(ast.Attribute, ast.Name, ast.ImportFrom):
        if isinstance(node, ast.ImportFrom):
            dotted, name = f"{node.module or ''}.", ""
        else:
            dotted, name = source.names.dotted(node), node.attr if isinstance(node, ast.Attribute) else ""
        own = name in _TRACING and (not dotted or dotted.startswith("torch"))
        if own or (dotted.startswith(_TRACED) and not dotted.startswith("torch.nn.")):
            return source.at(node, f"{dotted or name} takes in no question that is asked when the script runs")
    return ""
