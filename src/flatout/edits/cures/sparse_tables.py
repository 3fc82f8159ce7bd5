"""`sparse=True` for a table of which a step reads few rows, where its optimizer gives the same results then."""

import ast
from functools import partial

from flatout.edits.arguments import Given, given, set_argument
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.discarded_gradients import sees_gradients
from flatout.edits.reading.graphs.shown_modules import modules_shown
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.written_edit import WrittenEdit, with_changes

__all__ = ["with_sparse_gradients"]

_TABLES = ("Embedding", "EmbeddingBag", "embedding", "embedding_bag", "from_pretrained")
_BY_NAME = 99
_SAME = {  # what must be off for the results to be the same, with its place among the arguments
    "SGD": {"momentum": 2, "dampening": 3, "weight_decay": 4, "nesterov": 5},
    "Adagrad": {"weight_decay": 3},
}
_SAME = {name: places | dict.fromkeys(("maximize", "foreach", "fused"), _BY_NAME) for name, places in _SAME.items()}
_SETTING = ("dict", "update", "setdefault", "setattr")
_SETTINGS = {"momentum", "weight_decay", "maximize", "nesterov", "foreach", "fused"}
_READERS = words(
    "GradScaler create_graph OneCycleLR CyclicLR DataParallel half bfloat16 float16 set_default_dtype load_state_dict "
    "sparse extra_repr weight_norm spectral_norm parametrize register_parametrization __repr__ to_sparse compile"
)
_HOLDING = words("list tuple filter sum len next any all iter chain enumerate zip map numel")


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
    return _refused_settings(place.project) or _refused_others(place.project, str(held_by))


def _refused_others(project: Project, held_by: str) -> str:
    """Return another optimizer that may hold the table at some time, "" for none."""
    if held_by in project.classes or any(ast.unparse(base).endswith("Optimizer") for base in _bases(project)):
        return "an optimizer of the user's may not take sparse gradients"
    for source, call in project.nodes(ast.Call):
        dotted, name = source.names.dotted(call.func), last_name(call.func)
        is_optimizer = dotted.startswith("torch.optim.") and not dotted.startswith(_NO_OPTIMIZERS)
        given = [each for each in (*call.args, *(each.value for each in call.keywords)) if _is_parameters(each)]
        if is_optimizer and name != held_by:
            return source.at(call, f"{name} may hold the table, too")
        if given and not is_optimizer and name not in _HOLDING:
            return source.at(call, f"{name}() is given parameters")
    return ""


_NO_OPTIMIZERS = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.")


def _bases(project: Project) -> list[ast.expr]:
    return [base for _, made in project.nodes(ast.ClassDef) for base in made.bases]


def _is_parameters(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("parameters", "named_parameters")


def _refused_settings(project: Project) -> str:
    """Return what may set something of a parameter group, "" where nothing does."""
    for source, node in project.nodes(ast.Constant, ast.keyword):
        above = source.parents[node]
        said: object = node.arg if isinstance(node, ast.keyword) and last_name(_called(above)) in _SETTING else ""
        said = node.value if isinstance(node, ast.Constant) and _is_key(above, node) else said
        if said in _SETTINGS:
            return f"a parameter group may set {said} for itself"
    for source, node in project.nodes(ast.Subscript):
        is_set = isinstance(node.ctx, ast.Store) and "param_groups" in project.mentions
        if is_set and not isinstance(node.slice, ast.Constant):
            return source.at(node, f"{ast.unparse(node)} may be a setting of a parameter group")
    return ""


def _called(node: ast.AST) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else ast.Name("")


def _is_key(above: ast.AST, node: ast.Constant) -> bool:
    return (isinstance(above, ast.Dict) and node in above.keys) or (isinstance(above, ast.Subscript))


def _refused_reader(place: EditPlace) -> str:
    """Return what reads gradients and may not take sparse ones, or shows how a table is made; "" where nothing does."""
    hook = sees_gradients(place.project)
    if hook:
        return f"{hook} may not take sparse gradients"
    for source, node in place.project.nodes(ast.Attribute, ast.Name, ast.keyword, ast.alias):
        name = getattr(node, "attr", "") or getattr(node, "id", "") or getattr(node, "arg", "")
        name = name or getattr(node, "name", "").rpartition(".")[2]
        if name in _READERS and not (isinstance(node, ast.keyword) and name == "sparse"):
            at = node.value if isinstance(node, ast.keyword) else node
            return f"{source.shown}:{at.lineno}: {name} may not take sparse gradients"
    return modules_shown(place.project)
