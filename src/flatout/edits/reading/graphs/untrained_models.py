"""Networks that no optimizer trains at any time, and that nobody asks for gradients, as far as the source shows.

All places that mention such a network are looked at: it is made, moved, loaded, frozen, handed on and called. Anything
else may make its weights those of another network, or train them.
"""

import ast
from collections.abc import Iterator

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.apart_networks import are_apart
from flatout.edits.reading.graphs.discarded_gradients import sees_gradients
from flatout.edits.reading.graphs.steady_graphs import gives_graph
from flatout.edits.reading.parameter_groups import owner_of_parameters
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["optimizer_owners", "trained_somewhere"]

_MOVES = words(
    "eval to cuda cpu float half double bfloat16 train load_state_dict state_dict share_memory requires_grad_"
)
_LISTS = ("parameters", "named_parameters")
_NO_OPTIMIZERS = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.")
_CLIPS = ("clip_grad_norm_", "clip_grad_value_")
_Owner = tuple[SourceFile, ast.expr]


def optimizer_owners(project: Project) -> list[_Owner] | None:
    """Return whose parameters the optimizers hold, None where that cannot be told of all."""
    found: list[_Owner] = []
    for source, call in project.nodes(ast.Call):
        dotted = source.names.dotted(call.func)
        if dotted.startswith("torch.optim.") and not dotted.startswith(_NO_OPTIMIZERS):
            owner = owner_of_parameters(source, call)
            if owner is None:
                return None
            found.append((source, owner))
    return found or None


def trained_somewhere(project: Project, source: SourceFile, network: ast.expr) -> str:
    """Return how a network may be trained at some time, or its gradients be missed; "" where it cannot."""
    owners = optimizer_owners(project)
    if owners is None:
        return "what the optimizers hold cannot be told from the source"
    if not all(are_apart(project, (source, network), owner) for owner in owners):
        return f"{ast.unparse(network)} and what is trained may be one network, or parts of each other"
    unsure = next((owner for place, owner in owners if not gives_graph(project, place, owner)), None)
    if unsure is not None:
        return f"what {ast.unparse(unsure)} gives may have no graph at times"
    texts = {ast.unparse(owner) for _, owner in owners}
    seen = sees_gradients(project, set(_clips(project, texts)))
    if seen:
        return f"{seen} may see its gradients"
    names = _names(project, network)
    for place, node in project.nodes(ast.Name, ast.Attribute):
        if last_name(node) in names and not _is_plain_use(project, place, node, names):
            return place.at(node, f"{ast.unparse(node)} may be trained, or share its weights")
    return _frozen(project, names) or _held(project, texts)


def _clips(project: Project, owners: set[str]) -> Iterator[ast.AST]:
    """Yield the calls that clip gradients of what an optimizer holds alone."""
    for _, call in project.nodes(ast.Call):
        given = call.args[0] if call.args else None
        of_owner = (
            isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "parameters"
        )
        if last_name(call.func) in _CLIPS and of_owner and ast.unparse(given.func.value) in owners:  # type: ignore[union-attr]
            yield from (node for node in ast.walk(call.func) if isinstance(node, ast.Name | ast.Attribute))


def _names(project: Project, network: ast.expr) -> set[str]:
    """Return the names that a network has: variables, attributes, arguments that it is given as."""
    found, size = {last_name(network)}, -1
    while size != len(found):
        size = len(found)
        for source in project.sources:
            for node in ast.walk(source.tree):
                for target, value in pairs(node):
                    if isinstance(value, ast.Name | ast.Attribute) and {last_name(value), last_name(target)} & found:
                        found |= {last_name(value), last_name(target)}
        for _, call in project.nodes(ast.Call):
            for name, value in _given(project, call):
                if isinstance(value, ast.Name | ast.Attribute) and {last_name(value), name} & found:
                    found |= {last_name(value), name}
    return found


def _given(project: Project, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of the user's functions and classes with what a call gives for them."""
    known = [function for _, function in project.functions.get(last_name(call.func), ())]
    made = [each for _, each in project.classes.get(last_name(call.func), ())]
    known += [each for one in made for each in one.body if isinstance(each, Function) and each.name == "__init__"]
    for function in known:
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        yield from zip(names, call.args, strict=False)
    yield from ((each.arg, each.value) for each in call.keywords if each.arg is not None and known)


def _is_plain_use(project: Project, source: SourceFile, node: ast.Name | ast.Attribute, names: set[str]) -> bool:
    above = source.parents[node]
    if not isinstance(node.ctx, ast.Load):
        bound = [value for target, value in pairs(source.statement(node)) if target is node]
        return bool(bound) and all(isinstance(each, ast.Call | ast.Name | ast.Attribute) for each in bound)
    match above:
        case ast.Call() if above.func is node:
            return True
        case ast.Call() | ast.keyword():
            call = above if isinstance(above, ast.Call) else source.parents[above]
            name = last_name(call.func) if isinstance(call, ast.Call) else ""
            return name in project.functions or name in project.classes or name == "deepcopy"
        case ast.Assign() | ast.AnnAssign():
            return True
        case ast.Attribute():
            return _is_moved(source, above)
    return False


def _is_moved(source: SourceFile, method: ast.Attribute) -> bool:
    """Return whether `network.eval()`, or the like, is called, or its parameters are frozen or counted."""
    call = source.parents[method]
    if not isinstance(call, ast.Call) or call.func is not method:
        return False
    if method.attr == "requires_grad_":
        return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and not call.args[0].value
    if method.attr in _MOVES:
        return True
    around = source.parents[call]
    if method.attr not in _LISTS:
        return False
    if isinstance(around, ast.For):
        return all(_freezes(each) for each in around.body)
    return isinstance(around, ast.comprehension) and "numel" in ast.unparse(source.parents[around])


def _freezes(statement: ast.stmt) -> bool:
    return ast.unparse(statement).endswith((".requires_grad = False", ".requires_grad_(False)"))


def _frozen(project: Project, names: set[str]) -> str:
    """Return where something else is frozen, whose loss then has no other graph; "" for nowhere."""
    for source, node in project.nodes(ast.Assign, ast.AugAssign, ast.Call, ast.Constant):
        if isinstance(node, ast.Constant):
            found = node.value == "requires_grad"
        elif isinstance(node, ast.Call):
            found = last_name(node.func) == "requires_grad_" or any(
                each.arg == "requires_grad" for each in node.keywords
            )
        else:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for each in targets for part in ast.walk(each)]
            found = any(isinstance(each, ast.Attribute) and each.attr == "requires_grad" for each in parts)
        if found and not _is_of(source, node, names):
            return source.at(node, "requires_grad of something else may be set")
    return ""


def _is_of(source: SourceFile, node: ast.AST, names: set[str]) -> bool:
    """Return whether what is frozen is one of these networks."""
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr in _MOVES:
        owner = owner.func.value  # teacher.eval().requires_grad_(False)
    if owner is not None and last_name(owner) in names:
        return True
    loop = next((each for each in source.above(node) if isinstance(each, ast.For)), None)
    walked = loop.iter.func if loop is not None and isinstance(loop.iter, ast.Call) else None
    of_network = isinstance(walked, ast.Attribute) and walked.attr in _LISTS and last_name(walked.value) in names
    return of_network and isinstance(node, ast.stmt | ast.Call) and _freezes(source.statement(node))


def _held(project: Project, owners: set[str]) -> str:
    """Return a call that is given parameters and may train them, or a group of them that is changed; "" for none."""
    if "add_param_group" in project.mentions or "['params']" in project.mentions:
        return "an optimizer may be given more parameters"
    for source, call in project.nodes(ast.Call):
        dotted = source.names.dotted(call.func)
        known = dotted.startswith("torch.optim.") or last_name(call.func) in (
            *_CLIPS,
            "list",
            "sum",
            "filter",
            "iter",
            "len",
        )
        given = [*call.args, *(each.value for each in call.keywords)]
        lists = [each for each in given if isinstance(each, ast.Call) and last_name(each.func) in _LISTS]
        if lists and not known:
            return source.at(call, f"{ast.unparse(call.func)}() is given parameters")
    return ""
