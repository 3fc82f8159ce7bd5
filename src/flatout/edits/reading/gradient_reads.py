"""What reads or changes gradients and weights, as far as names tell: between two statements, or by a hook."""

import ast
import builtins
from collections.abc import Iterable, Iterator

from flatout.edits.reading.project import Project

__all__ = ["gradient_hook", "leaves_block", "touches_gradients"]

_CALLED = {"backward", "step", "zero_grad", "load_state_dict", "copy_params", "vector_to_parameters"}
_READ = {"grad", "data", "main_grad"}
_HOOKS = {
    "register_hook", "register_post_accumulate_grad_hook", "register_multi_grad_hook", "register_prehook",
    "register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook", "retain_grad",
    "register_module_full_backward_hook", "register_module_backward_hook", "register_comm_hook",
}  # fmt: skip
_WRAPPERS = {
    "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "DDP", "FSDP", "ZeroRedundancyOptimizer",
    "deepspeed",
}  # fmt: skip
_RUN_BY_CALL = ("forward", "__call__")
_KNOWN = {*dir(builtins), "item", "append", "detach", "cpu", "mean", "sum", "format", "tolist"}  # that call no module


def touches_gradients(project: Project, nodes: Iterable[ast.AST]) -> str:
    """Return what below `nodes`, or in functions of the user's called there, touches gradients or weights; "" if none.

    The `forward` of the user's modules counts, too, wherever something is called that is not known.
    """
    return next(_touching(project, nodes, set()), "")


def _touching(project: Project, nodes: Iterable[ast.AST], seen: set[str], *, model: bool = False) -> Iterator[str]:
    """Yield what touches them; what a `model` changes in place counts where it is its own, and no value on the way."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Attribute) and node.attr in _READ:
            yield ast.unparse(node)
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        in_place = name.endswith("_") and not name.endswith("__")
        if in_place and model:
            in_place = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).startswith("self.")
        if name in _CALLED or in_place or name.startswith("clip_grad"):
            yield f"{ast.unparse(node.func)}()"
        for called in (name,) if name in project.functions else () if name in _KNOWN else _RUN_BY_CALL:
            if called not in seen:
                seen.add(called)
                functions = (each for _, each in project.functions.get(called, ()))
                yield from _touching(project, functions, seen, model=model or called in _RUN_BY_CALL)


def leaves_block(nodes: Iterable[ast.AST]) -> bool:
    """Return whether a statement below `nodes` may leave the block, or hand control to somebody else."""
    leaving = ast.Return | ast.Break | ast.Continue | ast.Yield | ast.YieldFrom | ast.Await | ast.Raise
    return any(isinstance(inner, leaving) for each in nodes for inner in ast.walk(each))


def gradient_hook(project: Project) -> str:
    """Return the name of what sees gradients in each backward pass, hooks and wrappers of several ranks; "" if none."""
    for _, node in project.nodes(ast.Attribute, ast.Name):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        if name in _HOOKS or name in _WRAPPERS:
            return name
    return ""
