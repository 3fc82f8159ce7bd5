"""A question that edited code asks while it runs: whether the weights of models lie apart in memory."""

import ast

from flatout.edits.reading.source_file import SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name

__all__ = ["can_ask", "named_question"]

_NAME = "weights_apart"
_FUNCTION = '''\
def {name}(*models):
    """Return whether these modules have each weight in memory of its own, and copy what they load."""
    module = torch.nn.Module
    if not all(isinstance(model, module) for model in models):
        return False
    for part in (part for model in models for part in model.modules()):
        methods = [getattr(method, "__func__", None) for method in (part.state_dict, part.load_state_dict)]
        if methods != [module.state_dict, module.load_state_dict]:
            return False
        if not type(part)._load_from_state_dict.__module__.startswith("torch.nn."):
            return False
    weights = [weight for model in models for weight in model.state_dict().values()]
    if not all(type(weight) is torch.Tensor and weight.layout is torch.strided for weight in weights):
        return False
    memory = [weight.untyped_storage() for weight in weights]
    if any(each.nbytes() != weight.nbytes for each, weight in zip(memory, weights)):
        return False
    places = sorted((each.data_ptr(), each.data_ptr() + each.nbytes()) for each in memory)
    return all(end <= start for (_, end), (start, _) in zip(places, places[1:]))'''


def can_ask(source: SourceFile) -> bool:
    """Return whether the function that asks has a place: below the imports at the top, torch among them."""
    is_torch = source.names.imports.get("torch") == "torch"
    return is_torch and any(map(_binds_torch, _imports_above(source)))


def named_question(changes: TextChanges, source: SourceFile, wanted: str = _NAME, function: str = _FUNCTION) -> str:
    """Return the name of the function that asks; it is written below the imports, unless it is there.

    `function`: its code, with `{name}` for its name.

    Raises:
        Unplaced: something else shares the line of the last import.
    """
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef) and ast.unparse(node) == _written(function, node.name):
            return node.name
    name = fresh_name(source, wanted)
    changes.after(_imports_above(source)[-1], "", "", *function.format(name=name).split("\n"))
    return name


def _written(function: str, name: str) -> str:
    return ast.unparse(ast.parse(function.format(name=name)))


def _imports_above(source: SourceFile) -> list[ast.stmt]:
    """Return the imports at the top of a file: those behind its docstring, before anything else."""
    found: list[ast.stmt] = []
    for node in source.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            break
    return found


def _binds_torch(node: ast.stmt) -> bool:
    bound = [each.asname or each.name.split(".")[0] for each in node.names] if isinstance(node, ast.Import) else []
    return "torch" in bound
