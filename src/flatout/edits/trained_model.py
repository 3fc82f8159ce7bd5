"""The model that is trained: the one whose parameters the optimizers are given, and which the training calls."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from flatout.edits.optimizers import optimizer_calls
from flatout.edits.reading.dataflow import Flow, Origin, pairs
from flatout.edits.reading.parameter_groups import owner_of_parameters
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.training_loops import is_without_gradients, loops, trains
from flatout.edits.reading.user_classes import class_around, names_below
from flatout.edits.rewrite import Unplaced, parse_line
from flatout.edits.written_edit import Context, WrittenEdit, with_changes, with_import
from flatout.fixes.core.edit import ModelLine

__all__ = ["Model", "find_model", "model_line", "training_calls"]


@dataclass(frozen=True)
class Model:
    """The trained model: the call that makes it, the statement that gives it a name, and the name."""

    source: SourceFile
    made: ast.Call
    statement: ast.stmt
    name: str
    made_in: SourceFile  # the file of the call: that of the statement, or of a function that it calls


def find_model(project: Project) -> Model | str:
    """Return the one model that is trained, or why it cannot be told."""
    flow = Flow(project)
    made: dict[ast.Call, SourceFile] = {}
    optimizers = optimizer_calls(project)
    for source, call, _ in optimizers:
        asked = owner_of_parameters(source, call)
        if asked is None:
            return source.at(call, "this optimizer is not given the parameters() of one model: name the model there")
        found = {origin: place for place, origin in flow.origins(source, asked)}
        if not all(_may_be(project, source, asked, origin) for origin in found):
            return source.at(
                call, "the source does not show what this method is called on: make the optimizer next to the model"
            )
        made |= found
    if len(made) != 1:
        count = f"{len(made)} models are" if made else "no model is"
        return f"{count} found behind the {len(optimizers)} optimizers of the source, and it takes one"
    (origin, source), *_ = made.items()
    named = list(_named(project, flow, (source, origin)))
    if len({(each.name, each.source.path, each.source.scope(each.statement)) for each in named}) == 1:
        return min(named, key=lambda each: each.statement.lineno)  # others do something to it: model = model.to(device)
    return source.at(origin, "the model is not made by an assignment of its own: give it one")


def _may_be(project: Project, source: SourceFile, asked: ast.expr, made: ast.Call) -> bool:
    """Return whether what `made` makes can be the `self` of the method in which `asked` stands, if it is that."""
    owner = class_around(source, asked) if ast.unparse(asked) == "self" else None
    return owner is None or ast.unparse(made.func).rpartition(".")[2] in names_below(project, owner.name)


def _named(project: Project, flow: Flow, origin: Origin) -> Iterator[Model]:
    """Yield the assignments that give the model a name where it is made, by itself or by a function of the user's."""
    for source, statement in project.nodes(ast.Assign):
        for target, value in pairs(statement):
            called = isinstance(target, ast.Name | ast.Attribute) and isinstance(value, ast.Call)
            if called and flow.origins(source, value) == [origin]:
                yield Model(source, origin[1], statement, ast.unparse(target), made_in=origin[0])


def training_calls(project: Project, model: Model) -> list[Origin]:
    """Return the calls of the model in loops and functions that make the backward pass themselves."""
    flow = Flow(project)
    found = []
    for source, call in project.nodes(ast.Call):
        method = isinstance(call.func, ast.Attribute) and not flow.origins(source, call.func)
        if method or call is model.made or is_without_gradients(source, call):
            continue
        if (model.made_in, model.made) in flow.origins(source, call.func) and _has_backward(source, call):
            found.append((source, call))
    return found


def _has_backward(source: SourceFile, call: ast.Call) -> bool:
    """Return whether the innermost loop or function around a call makes a backward pass by itself."""
    around = next(each for each in source.above(call) if isinstance(each, ast.For | ast.While | Function | ast.Module))
    return any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in ast.walk(around))


def model_line(piece: ModelLine, project: Project, context: Context) -> WrittenEdit:
    """Write a line behind the statement that makes the model."""
    model = find_model(project)
    if isinstance(model, str):
        return WrittenEdit(project, left=(_decided(piece, project) or model,))
    code = context.code(piece.code, model=model.name)
    if ast.unparse(ast.parse(code)) in map(ast.unparse, _beside(model)):
        return WrittenEdit(project, there=1)
    if reason := _against(piece, project, model):
        return WrittenEdit(project, left=(reason,))

    def behind(statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
        return statement, parse_line(code, module)

    try:
        changed = with_changes(project, lines=[(model.source, model.statement.lineno, behind)])
        if "torch." in code.replace(model.name, "", 1):
            changed = with_import(changed, project.sources.index(model.source), "torch")
    except Unplaced:
        return WrittenEdit(
            project, left=(model.source.at(model.statement, f"no line can follow this one: add {code} by hand"),)
        )
    return WrittenEdit(changed, changed=1)


def _beside(model: Model) -> list[ast.stmt]:
    """Return the statements of the block that makes the model."""
    fields = ast.iter_fields(model.source.parents[model.statement])
    return next(block for _, block in fields if isinstance(block, list) and model.statement in block)


def _against(piece: ModelLine, project: Project, model: Model) -> str:
    if reason := _decided(piece, project, model.name):
        return reason
    beside = next((why for code, why in piece.not_beside.items() if code in project.mentions), "")
    if beside:
        return beside
    if not any(trains(project, source, loop) for source, loop in loops(project)):
        return "no loop of the source makes a backward pass: a library trains"
    direct = f"{model.name}.forward("
    if direct in project.mentions or not training_calls(project, model):
        return model.source.at(model.statement, f"{model.name} is not called as {model.name}(...) where it is trained")
    if piece.no_views and (place := _view(project, model)):
        return f"{place}: .view may receive the model's output in another memory order: use .reshape there"
    return ""


def _decided(piece: ModelLine, project: Project, name: str = "") -> str:
    """Return what shows that the code decides by itself; without the model's name, what needs none."""
    names = [each.format(model=name) for each in piece.unless if name or "{model}" not in each]
    mentioned = next((each for each in names if each in project.mentions), "")
    return f"the code mentions {mentioned}, so it may set this itself: check it there" if mentioned else ""


def _view(project: Project, model: Model) -> str:
    """Return where `.view` is called outside of the model's own classes, "" where nowhere."""
    inside = _own_classes(project, model)
    for source, call in project.nodes(ast.Call):
        named = isinstance(call.func, ast.Attribute) and call.func.attr == "view"
        if named and not any(each in inside for each in source.above(call)):
            return f"{source.shown}:{call.lineno}"
    return ""


def _own_classes(project: Project, model: Model) -> set[ast.ClassDef]:
    """Return the class that the model is made of and those that it names, and so on."""
    names, found = {node.id for node in ast.walk(model.made) if isinstance(node, ast.Name)}, set[ast.ClassDef]()
    names.add(ast.unparse(model.made.func).rpartition(".")[2])
    while names:
        classes = {each for name in names for _, each in project.classes.get(name, ())} - found
        found |= classes
        names = {node.id for each in classes for node in ast.walk(each) if isinstance(node, ast.Name)}
    return found
