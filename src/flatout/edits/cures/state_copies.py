"""Deep copies of a model's state_dict() that are without effect, left out.

A state_dict() is a new dictionary, of references to the weights. Where its items are only read, or bound anew to what
is computed from them, before anything can change that model, the references give the same bits. Where items are loaded
that share memory with weights, as those of tied layers do, the order of loading would show: so the code asks for that
while it runs, and copies as before where it is so.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.edits.cures.state_uses import StateUses
from flatout.edits.cures.weights_apart import can_ask, named_question
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import bound_as_words, is_plain
from flatout.edits.reading.called_functions import functions_at
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.own_meanings import own_names
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.states.state_dicts import (
    bound_to,
    cloned_value,
    is_deepcopy,
    is_seen,
    loads_it,
    state_of,
    unsettled,
)
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["without_deepcopy"]


@dataclass(frozen=True)
class _Copy:
    """A copy of the state of a model.

    Attributes:
        node: the whole copy.
        model: whose state it is; None where it is of a dictionary.
        value: the copied item of a dictionary that is made by a loop, and `item`: its name; None for a deep copy.
    """

    node: ast.expr
    model: ast.expr | None
    value: ast.expr | None = None
    item: ast.expr | None = None


@dataclass(frozen=True)
class _Change:
    """What becomes of a copy: it is left out where the weights of `asked` lie apart, everywhere if there are none."""

    copy: _Copy
    asked: tuple[ast.expr, ...] = ()
    is_written: bool = False  # keys are bound anew, which has to change nothing but a copy of the dictionary


def without_deepcopy(place: EditPlace) -> WrittenEdit:
    """Leave out the deep copies that are without effect, in the function of the line or one that the line calls."""
    reasons: list[str] = []
    odd = unsettled(place.project)
    for source, scope in functions_at(place.project, place.source, place.statement):
        sure: list[_Change] = []
        mute = "" if can_ask(source) else "whether weights lie apart cannot be asked: no import of torch above"
        for one in _copies(source, scope):
            found = odd or _change(place.project, source, one)
            found = mute if mute and isinstance(found, _Change) and found.asked else found
            if isinstance(found, str):
                reasons.append(source.at(one.node, found))
            else:
                sure.append(found)
        if sure:
            return WrittenEdit(_written(place.project, source, sure), changed=len(sure))
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
            if state is not None or (isinstance(given, ast.Name) and loads_it(source.parents[node], node)):
                yield _Copy(node, state)
        elif isinstance(node, ast.DictComp):
            found = cloned_value(source, node)
            if found is not None:
                yield _Copy(node, found[0], node.value, found[1])


# -- where a copy may be needed ---------------------------------------------------------------------------------------


def _change(project: Project, source: SourceFile, one: _Copy) -> _Change | str:
    """Return what may become of a copy, or why it may be needed."""
    around = source.parents[one.node]
    if one.model is not None and not _is_name_alone(project, one.model):
        return f"{ast.unparse(one.model)} may be another model each time"
    if loads_it(around, one.node):
        return _loaded_at_once(project, source, one, around)
    name = bound_to(around, one.node)
    if not name or one.model is None:
        return "the copy is kept in something, or handed on"
    use = StateUses(project, source, source.statement(one.node), name).use()
    odd = [ast.unparse(each) for each in use.loaded if not _is_name_alone(project, each)]
    if use.needed or odd:
        return use.needed or f"{odd[0]} may be another model each time"
    is_asked = use.loaded or (one.value is not None and use.is_inexact)  # a clone may lie otherwise in memory
    return _Change(one, (one.model, *use.loaded) if is_asked else (), use.is_written)


def _loaded_at_once(project: Project, source: SourceFile, one: _Copy, around: ast.AST) -> _Change | str:
    assert isinstance(around, ast.Call) and isinstance(around.func, ast.Attribute)
    model = around.func.value
    if not _is_name_alone(project, model):
        return f"{ast.unparse(model)} may be another model each time"
    if one.model is not None:
        return _Change(one, (one.model, model))
    assert isinstance(one.node, ast.Call) and isinstance(one.node.args[0], ast.Name)
    return _shared(project, source, one.node.args[0]) or _Change(one, (model,))


def _is_name_alone(project: Project, model: ast.expr) -> bool:
    """Return whether a model is a name with attributes that runs nothing of the user's."""
    names = {each.attr for each in ast.walk(model) if isinstance(each, ast.Attribute)}
    return is_plain(model) and not names & own_names(project)


def _shared(project: Project, source: SourceFile, state: ast.Name) -> str:
    """Return why a name may stand for tensors of a model: it is no copy, or something is done with it besides loads."""
    text, scope = state.id, source.scope(state)
    outer = [node for node in ast.walk(source.tree) if isinstance(node, ast.Global | ast.Nonlocal)]
    if any(text in node.names for node in outer) or (isinstance(scope, ast.Module) and is_seen(project, source)):
        return f"{text} is a name of other functions or files, too"
    named = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == text]
    stored = [each for each in named if not isinstance(each.ctx, ast.Load)]
    given = ast.walk(scope.args) if isinstance(scope, Function) else ()
    others = bound_as_words([scope]) | {each.arg for each in given if isinstance(each, ast.arg)}
    if len(stored) != 1 or text in others or source.scope(stored[0]) is not scope:
        return f"{text} may hold the tensors of this model under other names"
    around = source.parents[stored[0]]
    made = getattr(around, "value", None)
    is_read = isinstance(made, ast.Call) and source.names.dotted(made.func) == "torch.load"
    is_copy = isinstance(made, ast.Call) and is_deepcopy(source, made) and state_of(made.args[0]) is not None
    is_copy = is_copy or (made is not None and cloned_value(source, made) is not None)
    if not (is_read or is_copy) or bound_to(around, made) != text:  # type: ignore[arg-type]
        return f"{text} may hold the tensors of this model under other names"
    for node in named:
        above = source.parents[node]
        copied = isinstance(above, ast.Call) and is_deepcopy(source, above)
        if node not in stored and not loads_it(source.parents[above] if copied else above, above if copied else node):
            return f"{text} is used for something else than loads: its items may be bound to others"
    return ""


# -- the text ---------------------------------------------------------------------------------------------------------


def _written(project: Project, source: SourceFile, changes: list[_Change]) -> Project:
    """Return the project with copies left out.

    Raises:
        Unplaced: one has no place.
    """
    texts = TextChanges(source)
    name = named_question(texts, source) if any(each.asked for each in changes) else ""
    shallow = False
    for each in changes:
        question = f"{name}({', '.join(dict.fromkeys(ast.unparse(model) for model in each.asked))})"
        node, value, item = each.copy.node, each.copy.value, each.copy.item
        if value is None or item is None:
            assert isinstance(node, ast.Call)
            given = texts.text(node.args[0])
            shallow |= each.is_written
            new = f"copy.copy({given})" if each.is_written else given
            texts.replace(node, f"{new} if {question} else {texts.text(node)}" if each.asked else new)
        elif each.asked:
            apart = fresh_name(source, "apart")
            texts.before(source.statement(node), f"{apart} = {question}")
            texts.replace(value, f"{texts.text(item)} if {apart} else {texts.text(value)}")
        else:
            texts.replace(value, texts.text(item))
    done = texts.done(project)
    if not shallow:
        return done
    if source.names.imports.get("copy", "copy") != "copy":
        raise Unplaced
    return with_import(done, project.sources.index(source), "copy")
