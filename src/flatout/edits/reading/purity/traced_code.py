"""What in a project traces code: it runs a line with stand-ins for tensors, which no question about values suits."""

import ast
from collections.abc import Iterator

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile

__all__ = ["TRACED", "TRACING_WORDS", "dotted_in", "replaced_in", "traced_by", "words_in"]

TRACED = (
    "torch.jit", "torch.onnx", "torch.export", "torch.func", "torch.fx", "torch.compile", "torch._", "torch.vmap",
    "torch.autograd.functional", "torch.autograd.forward_ad", "torch.overrides", "torch.utils._", "functorch",
    "torch.nn.utils.stateless", "torch.utils.mobile_optimizer",
    "torch.ao", "torch.quantization", "torch.distributed.pipelining",
)  # fmt: skip
TRACING_WORDS = frozenset({
    "add_graph", "compile", "make_fx", "vmap", "log_graph", "to_torchscript", "to_onnx", "torch_compile",
    "symbolic_trace", "jit_mode_eval", "dynamo_backend", "torchdynamo", "FlopCountAnalysis", "torch_dispatch",
    "__torch_function__", "__torch_dispatch__", "create_feature_extractor", "torch_tensorrt", "torch2trt", "openvino",
    "nncf", "fvcore", "FlopCounterMode",
})  # fmt: skip


_MODULES = ("builtins", "numpy", "torch", "torch.linalg", "torch.nn", "torch.special")
_PLAIN = ("torch.__", "torch._foreach_")


def traced_by(project: Project, *, compiled: bool = False) -> str:
    """Return what traces code in a project, "" for nothing; `compiled`: torch.compile counts, too."""
    for source in project.sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant):  # a text in which a word stands is none
                continue
            for dotted in dotted_in(source, node):
                is_compiler = dotted.startswith("torch.compile") or dotted.startswith("torch._dynamo")
                if dotted.startswith(TRACED) and not dotted.startswith(_PLAIN) and (compiled or not is_compiler):
                    return f"`{dotted}`"
            for word in words_in(source, node):
                if word in TRACING_WORDS and (compiled or word not in ("compile", "torch_compile")):
                    return f"`{word}`"
    return ""


def replaced_in(project: Project) -> str:
    """Return what of torch's or NumPy's own a project replaces, "" for nothing; settings are none."""
    for source, node in project.nodes(ast.Attribute, ast.Call):
        if isinstance(node, ast.Call):
            is_set = isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr") and bool(node.args)
            owner = source.names.dotted(node.args[0]) if is_set else ""
        else:
            owner = "" if isinstance(node.ctx, ast.Load) else source.names.dotted(node.value)
        if owner in _MODULES or owner.startswith(("torch.Tensor", "torch.nn.")):
            return f"`{ast.unparse(node)}`"
    return ""


def dotted_in(source: SourceFile, node: ast.AST) -> Iterator[str]:
    """Yield what an attribute or an import stands for."""
    if isinstance(node, ast.Attribute):
        yield source.names.dotted(node)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def words_in(source: SourceFile, node: ast.AST) -> Iterator[str]:
    """Yield the words of a node: a name, an attribute, a keyword, an imported name, a text, a function's name."""
    if isinstance(node, ast.Attribute):
        dotted = source.names.dotted(node)
        if node.attr != "compile" or not dotted or dotted.startswith("torch"):  # of torch's, or of a module; not re's
            yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.keyword):
        yield node.arg or ""
    elif isinstance(node, ast.alias):
        yield from node.name.split(".")
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.FunctionDef):
        yield node.name
