"""Edits of the calls that make training loaders."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import libcst as cst

from flatout.edits.arguments import Given, given, set_argument
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.loader_classes import loader_classes, makers
from flatout.edits.reading.project import Project
from flatout.edits.reading.random_draws import made_randomly
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.training_loaders import LoaderCall, Role
from flatout.edits.rewrite import OnCall
from flatout.edits.written_edit import Context, WrittenEdit, with_changes, with_import
from flatout.fixes.core.edit import LoaderArgument, WrappedLoader

__all__ = ["loader_argument", "made_for_training", "training_loaders", "wrapped_loader"]

_ORDER: tuple[str, ...] = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn")
_ORDER += ("pin_memory", "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator")
_SAMPLERS = ("RandomSampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler", "BatchSampler")
_OF_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
_SLOWER = 0.05  # a patched script may be slower than its recipe by this share
_OTHERS = {
    Role.OTHER: "no backward pass runs in a loop over this loader, so it stays unchanged",
    Role.BOTH: "this line makes training loaders and others: make the training loader in a call of its own",
    Role.UNKNOWN: "it is not clear whether this loader is for training: iterate over it around the backward pass",
}
_Call = tuple[SourceFile, ast.Call, LoaderCall]


def training_loaders(project: Project, context: Context) -> tuple[list[_Call], list[str]]:
    """Return the calls that give training loaders their arguments now, and one line on each other that may be one."""
    calls = makers(project)
    return _chosen([(source, call, known) for (source, call, _), known in zip(calls, context.loaders, strict=True)])


def made_for_training(project: Project, context: Context) -> tuple[list[_Call], list[str]]:
    """Return the calls that make training loaders as they are now, those of the user's own classes too, likewise."""
    pairs: list[_Call] = []
    computed = []
    for (source, call, owner), known in zip(makers(project), context.loaders, strict=True):
        if owner is None:
            pairs.append((source, call, known))
        elif not owner.made:
            name = owner.definition.name
            computed.append(
                source.at(call, f"no call of {name} is in the source: a name computed at run time makes it")
            )
        else:
            made = zip(owner.made, known.made, strict=True)
            pairs += [(place, each, replace(known, role=role)) for (place, each), role in made]
    chosen, left = _chosen(pairs) if pairs or not computed else ([], [])
    return chosen, [*computed, *left]


def _chosen(pairs: list[_Call]) -> tuple[list[_Call], list[str]]:
    chosen = [each for each in pairs if each[2].role is Role.TRAINING]
    unsure = [Role.BOTH, Role.UNKNOWN] if chosen else list(_OTHERS)
    left = [source.at(node, _OTHERS[known.role]) for source, node, known in pairs if known.role in unsure]
    if not pairs:
        left = ["no call of torch's DataLoader is in the source: a library makes the loaders, or a name hides it"]
    return chosen, left


# -- arguments --------------------------------------------------------------------------------------------------------


def loader_argument(piece: LoaderArgument, project: Project, context: Context) -> WrittenEdit:
    """Write one argument of every training loader."""
    code = context.code(piece.code)
    chosen, left = training_loaders(project, context)
    edits: list[tuple[SourceFile, ast.Call, OnCall]] = []
    there = 0
    for source, call, known in chosen:
        place = _ORDER.index(piece.name) if piece.name in _ORDER else 99
        found, value = given(call, piece.name, code, place)
        if found is Given.EQUAL or (piece.at_least and found is Given.LITERAL and _is_more(value, code)):
            there += 1
        elif piece.of_workers and not _has_workers(call):
            left.append(source.at(call, f"this loader has no workers, so {piece.name} would have no effect"))
        elif reason := (
            _against(piece, project, source, call, known, code)
            or _given_elsewhere(piece.name, code, found, value)
            or _in_short_passes(piece, known, context)
        ):
            left.append(source.at(call, reason))
        else:
            edits.append((source, call, partial(set_argument, name=piece.name, code=code, place=place)))
    changed = with_changes(project, edits)
    for module in piece.needs:
        for at in {project.sources.index(source) for source, _, _ in edits}:
            changed = with_import(changed, at, module)
    return WrittenEdit(changed, len(edits), there, tuple(left))


def _given_elsewhere(name: str, code: str, found: Given, value: ast.expr | None) -> str:
    if found is not Given.ELSEWHERE:
        return ""
    held = f"{name} is given as {ast.unparse(value)}" if value is not None else f"*args or **kwargs may hold {name}"
    return f"{held}, whose value is not in this line: set it to {code} where it comes from"


def _in_short_passes(piece: LoaderArgument, known: LoaderCall, context: Context) -> str:
    """Return why passes are too short for what each of them would begin with, "" where they are not, or not known."""
    code = context.code(piece.code)
    if not piece.restart_s or not context.settings.get("persistent") or not code.isdigit():
        return ""
    wait_s = int(code) * piece.restart_s
    passes_s = [facts.num_batches * context.step_s for facts in known.recorded if facts.num_batches]
    if not passes_s or not 0 < min(passes_s) < wait_s / _SLOWER:
        return ""
    return (
        f"a pass takes {min(passes_s):.2g} s, and would wait some {wait_s:.2g} s for {code} new worker"
        f"{'s' if code != '1' else ''}: `flatout run` keeps them from one pass to the next"
    )


def _is_more(value: ast.expr | None, code: str) -> bool:
    number = value.value if isinstance(value, ast.Constant) else None
    return isinstance(number, int) and code.isdigit() and 0 < int(code) <= number


def _has_workers(call: ast.Call) -> bool:
    return given(call, "num_workers", "0", _ORDER.index("num_workers"))[0] in (Given.LITERAL, Given.ELSEWHERE)


def _against(
    piece: LoaderArgument, project: Project, source: SourceFile, call: ast.Call, known: LoaderCall, code: str
) -> str:
    """Return why samples of this loader cannot be made in other processes than now, "" where they can."""
    if not piece.in_workers:
        return ""
    told = [facts.prefix.deterministic for facts in known.recorded if facts.prefix is not None and facts.prefix.checked]
    random = "" if told and all(told) else made_randomly(project)
    if random:
        return f"{random}: a worker would draw other numbers; `flatout run` prevents that"
    named = {each.arg for each in call.keywords}
    if code == "0" and (extra := [name for name in _OF_WORKERS if name in named]):
        return f"{extra[0]} needs workers: remove it together with num_workers"
    if not known.straight:
        return "it is iterated by more than one `for` (zip, iter, next), so workers would draw in another order"
    return _strange_sampler(project, source, call)


def _strange_sampler(project: Project, source: SourceFile, call: ast.Call) -> str:
    for name in ("sampler", "batch_sampler"):
        value = next((each.value for each in call.keywords if each.arg == name), None)
        made = Flow(project).origins(source, value) if value is not None else []
        kinds = [place.names.dotted(each.func).rpartition(".")[2] for place, each in made]
        if value is not None and not (kinds and all(kind in _SAMPLERS for kind in kinds)):
            return f"{name} is {ast.unparse(value)}, which may draw batch by batch: with workers it would draw earlier"
    return ""


# -- wrapping ---------------------------------------------------------------------------------------------------------


def wrapped_loader(piece: WrappedLoader, project: Project, context: Context) -> WrittenEdit:
    """Hand every training loader to a function that returns the one to walk."""
    chosen, left = made_for_training(project, context)
    classes = {made: known for known in loader_classes(project) for _, made in known.made}
    wanted = [(source, call) for source, call, _ in chosen if not _is_wrapped(source, call, piece.function)]
    num_there = len(chosen) - len(wanted)
    for source, call in [each for each in wanted if each[1] in classes and not classes[each[1]].can_be_replaced]:
        name = classes[call].definition.name
        left.append(source.at(call, f"{name} defines more than __init__, which a wrapped loader would lose"))
        wanted.remove((source, call))
    for source, call in [each for each in wanted if _is_written_to(project, each[1])]:
        left.append(source.at(call, "an attribute of this loader is set later, which its wrapper would not see"))
        wanted.remove((source, call))
    code = context.code(piece.arguments)
    edits: list[tuple[SourceFile, ast.Call, OnCall]] = [
        (source, call, partial(_wrap, function=piece.function, arguments=code)) for source, call in wanted
    ]
    changed = with_changes(project, edits)
    for at in {project.sources.index(source) for source, _ in wanted}:
        changed = with_import(changed, at, piece.function.partition(".")[0])
    return WrittenEdit(changed, len(wanted), num_there, tuple(left))


def _is_wrapped(source: SourceFile, call: ast.Call, function: str) -> bool:
    return any(source.names.dotted(each.func) == function for each in _calls_above(source, call))


def _is_written_to(project: Project, call: ast.Call) -> bool:
    """Return whether an attribute of the loader that `call` makes is assigned to."""
    flow = Flow(project)
    targets = [each for each in project.nodes(ast.Attribute) if isinstance(each[1].ctx, ast.Store)]
    return any(call is made for source, target in targets for _, made in flow.origins(source, target.value))


def _calls_above(source: SourceFile, call: ast.Call) -> Iterator[ast.Call]:
    for each in source.above(call):
        if isinstance(each, ast.stmt):
            return
        if isinstance(each, ast.Call):
            yield each


def _wrap(call: cst.Call, function: str, arguments: str) -> cst.BaseExpression:
    outer = cst.ensure_type(cst.parse_expression(f"{function}(_{', ' if arguments else ''}{arguments})"), cst.Call)
    inside = call.with_changes(lpar=(), rpar=())
    return outer.with_changes(
        args=[outer.args[0].with_changes(value=inside), *outer.args[1:]], lpar=call.lpar, rpar=call.rpar
    )
