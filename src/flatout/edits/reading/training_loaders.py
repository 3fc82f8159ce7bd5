"""The calls that make loaders, and which of them are for training: told by the loops that walk them, or recorded."""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flatout.edits.reading.dataflow import Flow, Origin
from flatout.edits.reading.loader_classes import makers
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.training_loops import loops, trains
from flatout.schema.facts import LoaderFacts

__all__ = ["LoaderCall", "Role", "loader_calls"]


class Role(Enum):
    """What a loader is for."""

    TRAINING = "training"
    OTHER = "other"  # walked, but never with a backward pass
    BOTH = "both"  # one call makes loaders for training and others
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class LoaderCall:
    """One call that makes a loader, or hands the arguments of a class's own to DataLoader.

    `straight`: only `for` walks it, so nothing comes between start and first batch. `made`: of a class, what each call
    that makes one is for, in the order of the text.
    """

    source: SourceFile
    node: ast.Call
    role: Role
    straight: bool
    recorded: tuple[LoaderFacts, ...] = ()
    made: tuple[Role, ...] = ()


def loader_calls(project: Project, recorded: Sequence[LoaderFacts] = ()) -> list[LoaderCall]:
    """Return every call that hands arguments to torch's `DataLoader`, in the order of the text."""
    calls = makers(project)
    flow = Flow(project)
    origins = [known.made if known is not None else ((source, call),) for source, call, known in calls]
    walks: dict[ast.Call, list[tuple[bool, str]]] = {call: [] for made in origins for _, call in made}
    for source, place, walked, how in _walks(project):
        for _, origin in flow.origins(source, walked):
            if origin in walks:
                walks[origin].append((trains(project, source, place), how))
    found = []
    for (source, call, known), made in zip(calls, origins, strict=True):
        roles = [_role_of(project, each, walks[each[1]], alone=len(calls) == len(walks) == 1) for each in made]
        facts = _made_at(source, call, recorded)
        if any(_share_a_line(call, other) for place, other, _ in calls if place is source and other is not call):
            facts = tuple(each for each in facts if {_recorded_role([each])} == set(roles))
        if not facts and known is not None and not known.is_made_in_sight:
            roles = [Role.UNKNOWN] * len(made)
        role = _recorded_role(facts) if facts else _together(roles)
        if facts and role is not Role.BOTH:
            roles = [role] * len(made)
        straight = {how for _, each in made for _, how in walks[each]} == {"for"}
        found.append(LoaderCall(source, call, role, straight, facts, tuple(roles) if known is not None else ()))
    return found


def _role_of(project: Project, made: Origin, walks: Sequence[tuple[bool, str]], *, alone: bool) -> Role:
    role = _role(walks, alone=alone)
    if role is Role.BOTH and not _is_shared(project, *made):
        return Role.TRAINING  # one loader, which is looked at between epochs, too
    return role


def _together(roles: Sequence[Role]) -> Role:
    """Return what all loaders of a class are for."""
    found = set(roles)
    return found.pop() if len(found) == 1 else Role.BOTH if Role.TRAINING in found else Role.UNKNOWN


def _walks(project: Project) -> Iterable[tuple[SourceFile, ast.AST, ast.expr, str]]:
    """Yield what is walked: file, the loop or function it happens in, the expression, and how."""
    for source, loop in loops(project):
        if not isinstance(loop, ast.While):
            several = any(isinstance(each, ast.Call) and _name(each) in ("zip", "iter") for each in ast.walk(loop.iter))
            yield source, loop, loop.iter, "zip" if several else "for"
    for source, call in project.nodes(ast.Call):
        if _name(call) == "next" and call.args:
            around = (each for each in source.above(call) if isinstance(each, ast.For | ast.While))
            yield source, next(around, source.scope(call)), call.args[0], "next"


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _role(walks: Sequence[tuple[bool, str]], *, alone: bool) -> Role:
    found = {training for training, _ in walks}
    if len(found) == 2:
        return Role.BOTH
    if found == {True} or (not found and alone):
        return Role.TRAINING
    return Role.OTHER if found else Role.UNKNOWN


def _is_shared(project: Project, source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call stands in a function that is called in several places, or gives its loader away."""
    scope = source.scope(call)
    if not isinstance(scope, Function):
        return False
    called = sum(_name(each) == scope.name for _, each in project.nodes(ast.Call))
    return called > 1 or isinstance(source.statement(call), ast.Return)


def _made_at(source: SourceFile, call: ast.Call, recorded: Sequence[LoaderFacts]) -> tuple[LoaderFacts, ...]:
    last = call.end_lineno or call.lineno
    return tuple(
        facts
        for facts in recorded
        if facts.created_at is not None
        and call.lineno <= facts.created_at.line <= last
        and Path(facts.created_at.file).resolve() == source.path
    )


def _share_a_line(call: ast.Call, other: ast.Call) -> bool:
    """Return whether a recording, which knows lines, cannot tell the loaders of two calls from each other."""
    return call.lineno <= (other.end_lineno or other.lineno) and other.lineno <= (call.end_lineno or call.lineno)


def _recorded_role(facts: Sequence[LoaderFacts]) -> Role:
    found = {each.is_training for each in facts}
    return Role.BOTH if len(found) == 2 else Role.TRAINING if found == {True} else Role.OTHER
