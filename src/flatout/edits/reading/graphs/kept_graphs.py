"""What the functions behind some lines do besides computing, where it matters whether gradients are recorded there.

Looked at are the user's functions that the lines call, by name, and all that a model, a loss or a loader may run:
`forward`, `__call__`, `__getitem__` and their kin, with what these call.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.number_uses import KEEPING, NumberUses
from flatout.edits.reading.graphs.recorded_values import may_record, recording
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.writes.changed_meanings import changed_meaning

__all__ = ["asks_for_graph", "graphs_kept", "reached_functions", "read_otherwise"]

_RUN_UNSEEN = ("forward", "__call__", "__getitem__", "__getitems__", "__iter__", "__next__", "__enter__", "__exit__")
_ASKING = words(
    "is_grad_enabled enable_grad set_grad_enabled retain_grad requires_grad requires_grad_ grad grad_fn is_leaf "
    "backward autograd checkpoint vjp jvp jacrev jacfwd register_hook register_parameter register_forward_hook "
    "Parameter exec register_forward_pre_hook register_module_forward_hook saved_tensors_hooks is_inference "
    "add_param_group globals __torch_function__ __torch_dispatch__"
)


def asks_for_graph(source: SourceFile, nodes: Iterable[ast.AST]) -> str:
    """Return a name below `nodes` by which code asks for gradients, or makes something of them; "" for none."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        dotted = source.names.dotted(node).split(".")
        name = next((each for each in dotted if each in _ASKING), name)
        if isinstance(node, ast.keyword) and node.arg == "requires_grad":
            return "requires_grad"
        if isinstance(node, ast.Constant) and node.value in _ASKING and isinstance(node.value, str):
            return node.value
        if name in _ASKING:
            return name
        is_look_up = isinstance(node, ast.Call) and last_name(node.func) == "getattr"
        if is_look_up and not (len(node.args) > 1 and isinstance(node.args[1], ast.Constant)):  # type: ignore[attr-defined]
            return "getattr"
    return ""


def read_otherwise(project: Project, source: SourceFile, nodes: Sequence[ast.AST]) -> str:
    """Return what would do otherwise if `nodes` ran without gradients: code behind them, or what uses their results."""
    kept = _autocast_around(project, source, nodes) or graphs_kept(project, source, nodes)
    if kept:
        return kept
    uses = NumberUses(project)
    for node in recording(project, source, nodes):
        uses.follow(source, node)
    return uses.reason


def _autocast_around(project: Project, source: SourceFile, nodes: Sequence[ast.AST]) -> str:
    """Return where autocast goes on behind `nodes`, and may keep weights that it casts there; "" for nowhere."""
    contexts = [
        (place, node)
        for place, node in project.nodes(ast.With)
        if any("autocast" in ast.unparse(item.context_expr) for item in node.items)
    ]
    around = {each for node in nodes[:1] for each in source.above(node)}
    names = [each.name for each in around if isinstance(each, Function)]
    for name in names:  # grows while it is read
        for place, call in project.nodes(ast.Call):
            if last_name(call.func) == name:
                around |= {*place.above(call)}
                names += [
                    each.name for each in place.above(call) if isinstance(each, Function) and each.name not in names
                ]
    return next((place.at(node, "autocast may keep what it casts") for place, node in contexts if node in around), "")


def _warned(project: Project) -> str:
    """Return where warnings are errors or collected: reading numbers of a tensor that has a graph may warn."""
    for source, call in project.nodes(ast.Call):
        given = [each.value for each in call.args if isinstance(each, ast.Constant)]
        error = last_name(call.func) in ("simplefilter", "filterwarnings") and "error" in given
        if error or (last_name(call.func) == "catch_warnings" and call.keywords):
            return source.at(call, "warnings are looked at")
    return ""


def reached_functions(project: Project, nodes: Iterable[ast.AST]) -> list[tuple[SourceFile, Function]]:
    """Return the user's functions that may run where `nodes` do, by name, and those that they call."""
    found: dict[Function, SourceFile] = {}
    names = [*_RUN_UNSEEN, *_mentioned(nodes)]
    for name in names:  # grows while it is read
        for source, function in project.functions.get(name, ()):
            if function not in found:
                found[function] = source
                names += _mentioned([*function.body, *function.decorator_list, function.args])
        for source, made in project.classes.get(name, ()):
            for function in (each for each in made.body if isinstance(each, Function)):
                if function.name in ("__init__", "__new__", "__post_init__") and function not in found:
                    found[function] = source
                    names += _mentioned(function.body)
    return [(source, function) for function, source in found.items()]


def _mentioned(nodes: Iterable[ast.AST]) -> list[str]:
    inside = [inner for each in nodes for inner in ast.walk(each)]
    found = [node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in inside]
    return list(dict.fromkeys(filter(None, found)))


def graphs_kept(project: Project, source: SourceFile, nodes: Sequence[ast.AST]) -> str:
    """Return what behind `nodes` would do otherwise without gradients, besides what it returns; "" for nothing."""
    asked = asks_for_graph(source, nodes)
    if asked:
        return f"{asked} asks for gradients"
    meaning = changed_meaning(project) or _warned(project)
    if meaning:
        return meaning
    cached = next((each for each in ("parametrize.cached", "P.cached", "cached()") if each in project.mentions), "")
    if cached:
        return f"{cached} may keep weights that were made without a graph"
    for place, function in reached_functions(project, nodes):
        asked = asks_for_graph(place, [function])
        if asked:
            return place.at(function, f"{function.name}() asks for gradients ({asked})")
        kept = next(_kept(project, place, function), "")
        if kept:
            return place.at(function, f"{function.name}() {kept}")
        uses = NumberUses(project)
        for node in recording(project, place, function.body):
            uses.follow(place, node, inside=function)
        if uses.reason:
            return uses.reason
    return ""


def _kept(project: Project, source: SourceFile, function: Function) -> Iterator[str]:
    """Yield how a function keeps what may have a graph."""
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield f"writes {node.names[0]}"
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for each in targets for part in ast.walk(each)]
            held = [each for each in parts if isinstance(each, ast.Attribute | ast.Subscript)]
            held = [each for each in held if isinstance(each.ctx, ast.Store) and not _is_own(source, each)]
            if held and node.value is not None and may_record(project, source, node.value):
                yield f"keeps {ast.unparse(held[0])}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPING:
            is_kept = not _is_own(source, node.func) and not source.names.dotted(node.func)
            if is_kept and any(may_record(project, source, each) for each in node.args):
                yield f"keeps something in {ast.unparse(node.func.value)}"
        elif isinstance(node, ast.Call) and is_builtin(source, node.func, ("setattr",)):
            yield "sets attributes by their names"


def _is_own(source: SourceFile, node: ast.expr) -> bool:
    """Return whether an item is one of a list or dictionary that its function makes."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Name):
        return False
    inside = list(ast.walk(source.scope(node)))
    bound = [value for each in inside for to, value in pairs(each) if isinstance(to, ast.Name) and to.id == node.id]
    stored = [each for each in inside if isinstance(each, ast.Name) and each.id == node.id]
    stored = [each for each in stored if not isinstance(each.ctx, ast.Load)]
    given = [each for each in inside if isinstance(each, ast.arg) and each.arg == node.id]
    made = ast.List | ast.Dict | ast.ListComp | ast.DictComp | ast.Set
    return not given and bool(bound) and len(bound) == len(stored) and all(isinstance(each, made) for each in bound)
