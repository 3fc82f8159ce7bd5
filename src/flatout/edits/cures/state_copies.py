"""Deep copies of a model's state_dict() that are without effect, left out.

A state_dict() is a new dictionary, of references to the weights. Where the items are only read or bound anew, and go
to `load_state_dict`, which copies, before anything can change that model, the references give the same bits.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.edits.cures.state_uses import StateUses
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.called_functions import functions_at
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.state_dicts import bound_to, is_deepcopy, loads_it, state_of, unlike_module
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["without_deepcopy"]

_OWN_STATE = re.compile(
    r"_state_dict_hook|state_dict_pre_hook|state_dict_post_hook|_extra_state|_load_from_state_dict|_save_to_state_dict|"
    r"swap_module_params|FullyShardedDataParallel|fully_shard|deepspeed|share_memory|\bThread\(|ThreadPool"
)  # words of projects in which a state dict is another one, or weights change at any time


@dataclass(frozen=True)
class _Copy:
    """A copy of the state of a model.

    Attributes:
        node: the whole copy.
        model: whose state it is; None where it is of any dictionary.
        old: what is written another way, and `new`: what stands for it.
    """

    node: ast.expr
    model: ast.expr | None
    old: ast.expr
    new: ast.expr


def without_deepcopy(place: EditPlace) -> WrittenEdit:
    """Leave out the deep copies that are without effect, in the function of the line or one that the line calls."""
    reasons: list[str] = []
    for source, scope in functions_at(place.project, place.source, place.statement):
        sure = []
        for one in _copies(source, scope):
            reason = _needed(place.project, source, one)
            if reason:
                reasons.append(source.at(one.node, reason))
            else:
                sure.append(one)
        if sure:
            changes = TextChanges(source)
            for one in sure:
                changes.replace(one.old, changes.text(one.new))
            return WrittenEdit(changes.done(place.project), changed=len(sure))
    if reasons:
        return WrittenEdit(place.project, left=tuple(reasons))
    return place.left("a deep copy of a model's state_dict() is not found here")


def _copies(source: SourceFile, scope: ast.AST) -> Iterator[_Copy]:
    for node in ast.walk(scope):
        if source.scope(node) is not scope:
            continue
        if isinstance(node, ast.Call) and is_deepcopy(source, node):
            given = node.args[0]
            state = state_of(given)
            if state is not None or (is_plain(given) and loads_it(source.parents[node], node)):
                yield _Copy(node, state, node, given)
        elif isinstance(node, ast.DictComp) and len(node.generators) == 1:
            found = _cloned(source, node)
            if found is not None:
                yield found


def _cloned(source: SourceFile, node: ast.DictComp) -> _Copy | None:
    """Return the copy that `{k: v.clone() for k, v in model.state_dict().items()}` is."""
    (loop,) = node.generators
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    items = loop.iter.func if isinstance(loop.iter, ast.Call) and not loop.iter.args else None
    state = state_of(items.value) if isinstance(items, ast.Attribute) and items.attr == "items" else None
    if state is None or len(names) != 2 or not all(isinstance(each, ast.Name) for each in names) or loop.is_async:
        return None
    if ast.unparse(node.key) != ast.unparse(names[0]):  # other keys may be those of other weights of the same model
        return None
    value, cloned = ast.unparse(names[1]), False
    inner: ast.expr = node.value
    while isinstance(inner, ast.Call):
        call = inner
        if is_deepcopy(source, call):
            inner, cloned = call.args[0], True
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("clone", "detach") and not _given(call):
            inner, cloned = call.func.value, cloned or call.func.attr == "clone"
        else:
            return None
    return _Copy(node, state, node.value, inner) if cloned and ast.unparse(inner) == value else None


def _given(call: ast.Call) -> bool:
    return bool(call.args or call.keywords)


# -- where a copy may be needed ---------------------------------------------------------------------------------------


def _needed(project: Project, source: SourceFile, one: _Copy) -> str:
    """Return why a copy may be needed, "" where it is not."""
    special = _OWN_STATE.search(project.mentions)
    if special:
        return f"{special.group()} is used here: a state dict may be another one, or change at any time"
    around = source.parents[one.node]
    if loads_it(around, one.node):
        return _needed_to_load(project, source, one, around)
    name = bound_to(around, one.node)
    if not name or one.model is None:
        return "the copy is kept in something, or handed on"
    return StateUses(project, source, source.statement(one.node), one.model, name).needed()


def _needed_to_load(project: Project, source: SourceFile, one: _Copy, around: ast.AST) -> str:
    assert isinstance(around, ast.Call) and isinstance(around.func, ast.Attribute)
    model = around.func.value
    reason = unlike_module(project, source, model, surely=True)
    if reason or one.model is not None:
        return reason or unlike_module(project, source, one.model or model, surely=True)
    text = ast.unparse(one.new)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == text:
            return f"items of {text} are bound to others, which may be those of this model"
    made = Flow(project).origins(source, one.new)
    if not made or any(place.names.dotted(call.func) not in ("copy.deepcopy", "torch.load") for place, call in made):
        return f"{text} may hold the tensors of this model under other names"
    return ""
