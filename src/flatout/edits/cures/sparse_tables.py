"""`sparse=True` for a table of which a step reads few rows, where its optimizer gives the same results then."""

import ast
from functools import partial

from flatout.edits.arguments import Given, given, set_argument
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.gradient_reads import gradient_hook
from flatout.edits.written_edit import WrittenEdit, with_changes

__all__ = ["with_sparse_gradients"]

_TABLES = ("Embedding", "EmbeddingBag", "embedding", "embedding_bag", "from_pretrained")
_BY_NAME = 99
_SAME = {  # what must be off for the results to be the same, with its place among the arguments
    "SGD": {"momentum": 2, "dampening": 3, "weight_decay": 4, "nesterov": 5},
    "Adagrad": {"weight_decay": 3},
}
_SAME = {name: places | dict.fromkeys(("maximize", "foreach", "fused"), _BY_NAME) for name, places in _SAME.items()}
_SETTINGS = {"momentum", "weight_decay", "maximize", "nesterov", "foreach", "fused"}
_READERS = {"clip_grad_norm_", "clip_grad_value_", "grad", "unscale_", "GradScaler", "get_total_norm"}


def with_sparse_gradients(place: EditPlace) -> WrittenEdit:
    """Write `sparse=True` in the calls that make the tables, or look rows up: that of the line, and those beside it."""
    source = place.source
    calls = _tables_made(place, place.statement)
    if len(calls) != 1:
        return place.left("the line that makes the table, nn.Embedding(...), is not found here")
    if given(calls[0], "sparse", "True")[0] is Given.EQUAL:
        return WrittenEdit(place.project, there=1)
    reason = _refused_table(calls[0]) or _refused_optimizer(place) or _refused_reader(place)
    if reason:
        return place.left(reason)
    how = partial(set_argument, name="sparse", code="True")
    changes = [(source, call, how) for call in (*calls, *_other_tables(place))]
    return WrittenEdit(with_changes(place.project, calls=changes), changed=len(changes))


def _tables_made(place: EditPlace, statement: ast.AST) -> list[ast.Call]:
    """Return the calls of a statement that make a table, or look its rows up."""
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and last_name(node.func) in _TABLES]
    return [call for call in calls if place.source.names.dotted(call.func).startswith("torch.nn.")]


def _other_tables(place: EditPlace) -> list[ast.Call]:
    """Return those on the other lines of the finding that can be changed, too."""
    lines = place.finding.argument("lines_of_other_tables")
    wanted = set(lines if isinstance(lines, tuple) else ())
    calls = [call for call in _tables_made(place, place.source.tree) if call.lineno in wanted]
    return [call for call in calls if given(call, "sparse", "True")[0] is not Given.EQUAL and not _refused_table(call)]


def _refused_table(call: ast.Call) -> str:
    """Return why torch makes no sparse gradients for this call, "" where it does."""
    state, given_as = given(call, "sparse", "True")
    if state is not Given.NOTHING and not isinstance(given_as, ast.Constant):
        return "sparse is given by an expression: give it True"
    for keyword in call.keywords:
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg == "scale_grad_by_freq" and value is not False:
            return "scale_grad_by_freq takes no sparse gradients"
        if keyword.arg == "mode" and value not in ("sum", "mean"):
            return "mode='max' takes no sparse gradients"
    few = 2 if last_name(call.func).islower() else 3  # positions behind hold what is asked for above
    return "" if len(call.args) <= few else "it is given more than sizes without names"


def _refused_optimizer(place: EditPlace) -> str:
    """Return why the optimizer of the table would train otherwise, "" where it would not."""
    held_by = place.finding.argument("optimizer")
    if held_by not in _SAME:
        return (
            f"{held_by or 'its optimizer'} with sparse gradients is another training (torch.optim.SparseAdam, class "
            "SEMANTIC): choose it by hand and compare the quality"
        )
    calls = [
        (source, call)
        for source, call in place.project.nodes(ast.Call)
        if last_name(call.func) == held_by and source.names.dotted(call.func).startswith("torch.optim.")
    ]
    if not calls:
        return f"the line that makes the optimizer ({held_by}) is in no file that is read"
    for source, call in calls:
        for name, at in _SAME[str(held_by)].items():
            state, value = given(call, name, "", at)
            off = isinstance(value, ast.Constant) and not value.value
            if state is not Given.NOTHING and not off:
                return source.at(call, f"{name} of {held_by} makes another training of sparse gradients")
    for source, node in place.project.nodes(ast.Constant, ast.keyword):
        said: object = (
            node.arg if isinstance(node, ast.keyword) and last_name(_called(source.parents[node])) == "dict" else ""
        )
        said = node.value if isinstance(node, ast.Constant) and _is_key(source.parents[node], node) else said
        if said in _SETTINGS:
            return f"a parameter group may set {said} for itself"
    return ""


def _called(node: ast.AST) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else ast.Name("")


def _is_key(above: ast.AST, node: ast.Constant) -> bool:
    return (isinstance(above, ast.Dict) and node in above.keys) or (isinstance(above, ast.Subscript))


def _refused_reader(place: EditPlace) -> str:
    """Return what reads gradients and may not take sparse ones, "" where nothing does."""
    hook = gradient_hook(place.project)
    if hook:
        return f"{hook} may not take sparse gradients"
    for source, node in place.project.nodes(ast.Attribute, ast.Name):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        if name in _READERS:
            return source.at(node, f"{name} may not take sparse gradients")
    return ""
