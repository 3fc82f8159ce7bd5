"""Lookups in a list that a loop repeats: `.count()`, `.index()` and `in`, through a dictionary or set made once.

Each of them goes through the list. A set finds the same items as long as what is equal has one hash, which is so for
Python's numbers and strings, and not for tensors or NumPy's numbers: the lookup checks the types, and where these are
others, it is done in the list as before.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.called_functions import called_at, name_called
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.unchanged_lists import ListUse
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["by_dictionaries"]

_SURE = "{bool, float, int, str}"  # types whose equal values have one hash
_NEEDED = {"bool", "dict", "float", "int", "len", "list", "map", "range", "set", "str", "tuple", "type", "zip"}
_AT_ONCE = {"all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple"}
_NEVER = ast.Tuple | ast.List | ast.Dict | ast.Set | ast.ListComp | ast.Lambda  # of types that are not sure
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_NOTHING = "lookups in a list that a loop repeats (.count(), .index(), in) are not found here"


@dataclass(frozen=True)
class _Lookup:
    """`groups.count(g)`, `words.index(w)`, `x in seen`: what is sought, in which list."""

    node: ast.Call | ast.Compare
    kind: str
    held: ast.Name | ast.Attribute
    sought: ast.expr


@dataclass(frozen=True)
class _Loop:
    """Code that is repeated, as a whole, and the statement before which something is made once for it."""

    region: Sequence[ast.AST]
    start: ast.stmt


def by_dictionaries(place: EditPlace) -> WrittenEdit:
    """Look up in sets and dictionaries: on the line, in the loops around it, in the functions that it calls."""
    reasons: list[str] = []
    own = _found(place.project, place.source, place.source.scope(place.statement), reasons)
    near = [each for each in own if _is_near(place.statement, *each)]
    groups = [(place.source, near)]
    groups += [(at, _found(place.project, at, each, reasons)) for at, each in called_at(place.project, place.statement)]
    for source, found in [*groups, (place.source, own)]:
        if found:
            return _written(place.project, source, found)
    return WrittenEdit(place.project, left=tuple(dict.fromkeys(reasons))) if reasons else place.left(_NOTHING)


def _is_near(statement: ast.stmt, lookup: _Lookup, loop: _Loop) -> bool:
    around = {node for each in loop.region for node in ast.walk(each)}
    return lookup.node in ast.walk(statement) or statement in around


# -- finding them -----------------------------------------------------------------------------------------------------


def _found(project: Project, source: SourceFile, scope: ast.AST, reasons: list[str]) -> list[tuple[_Lookup, _Loop]]:
    """Return the lookups of a function that can be done otherwise, each with the loop that its list outlasts."""
    found: list[tuple[_Lookup, _Loop]] = []
    if not isinstance(scope, Function | ast.Module):
        return found
    for lookup in _lookups(source, scope):
        if any(lookup.node in ast.walk(other.sought) for other, _ in found):
            continue  # it is part of what another one looks for
        use, chosen, reason = ListUse(project, source, lookup.held), None, ""
        loops = list(_loops(source, lookup.node)) if use.is_worth_it else []
        if loops and _NEEDED & {*source.names.bound, *source.names.imports}:
            reason = f"{min(_NEEDED & {*source.names.bound, *source.names.imports})} has another meaning in this file"
            loops = []
        for loop in loops:
            reason = use.changed_in(loop.region, loop.start)
            if reason:
                break
            chosen = loop
        if chosen is not None:
            found.append((lookup, chosen))
        elif reason:
            reasons.append(source.at(lookup.node, reason))
    return found


def _lookups(source: SourceFile, scope: ast.AST) -> Iterator[_Lookup]:
    for node in ast.walk(scope):
        if source.scope(node) is not scope:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            held, sought = node.func.value, node.args[0]
            kind = node.func.attr if not node.keywords and not isinstance(sought, ast.Starred) else ""
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            held, sought, kind = node.comparators[0], node.left, "in"
        else:
            continue
        if any(isinstance(each, ast.JoinedStr) for each in source.above(node)) or isinstance(sought, _NEVER):
            continue  # places in f-strings are not told exactly
        if kind in ("count", "index", "in") and is_plain(held):
            yield _Lookup(node, kind, held, sought)  # type: ignore[arg-type]


def _loops(source: SourceFile, node: ast.AST) -> Iterator[_Loop]:
    """Yield the loops that repeat a node, from the innermost on; none beyond code that may run at another time."""
    below, inner = node, node
    for above in source.above(node):
        if isinstance(above, Function | ast.Lambda | ast.ClassDef | ast.AsyncFor):
            return
        if isinstance(above, ast.For | ast.While):
            if below in above.body or (isinstance(above, ast.While) and below is above.test):
                yield _Loop([above], above)
        elif isinstance(above, _Comprehension):
            is_later = isinstance(above, ast.GeneratorExp) and not _is_used_up(source, above)
            if is_later or any(each.is_async for each in above.generators):
                return
            first = above.generators[0]
            if not (below is first and inner is first.iter):
                yield from _around(source, above)
        below, inner = above, below


def _is_used_up(source: SourceFile, node: ast.GeneratorExp) -> bool:
    """Return whether a function takes all that a generator gives before anything else is done."""
    call = source.parents[node]
    if not isinstance(call, ast.Call) or node not in call.args:
        return False
    joins = name_called(call) == "join" and isinstance(call.func, ast.Attribute)
    return is_builtin(source, call.func, _AT_ONCE) or (joins and isinstance(call.func.value, ast.Constant))  # type: ignore[attr-defined]


def _around(source: SourceFile, comprehension: ast.expr) -> Iterator[_Loop]:
    """Yield a comprehension with the statement that it is part of, unless that repeats it by itself."""
    statement = source.statement(comprehension)
    if isinstance(statement, ast.If):
        yield _Loop([statement.test], statement)
    elif isinstance(statement, ast.For) and comprehension in ast.walk(statement.iter):
        yield _Loop([statement.iter], statement)
    elif isinstance(statement, ast.With):
        yield _Loop([each.context_expr for each in statement.items], statement)
    elif not hasattr(statement, "body") and not isinstance(statement, ast.Match):
        yield _Loop([statement], statement)


# -- writing them -----------------------------------------------------------------------------------------------------


def _written(project: Project, source: SourceFile, found: Sequence[tuple[_Lookup, _Loop]]) -> WrittenEdit:
    changes, names = TextChanges(source), _Names(source)
    made: dict[tuple[ast.stmt, str], tuple[str, dict[str, str]]] = {}
    is_counting = False
    for lookup, loop in found:
        held = changes.text(lookup.held)
        types, of_kinds = made.setdefault((loop.start, held), (names.new(f"types_of_{_last(lookup.held)}"), {}))
        if lookup.kind not in of_kinds:
            wanted = {"count": "counts", "index": "places", "in": "set"}[lookup.kind]
            of_kinds[lookup.kind] = names.new("_".join((wanted, "of", _last(lookup.held))))
        is_counting |= lookup.kind == "count"
        changes.replace(lookup.node, _lookup(changes, lookup, held, of_kinds[lookup.kind], types, names))
    counter = next((name for name, dotted in source.names.imports.items() if dotted == "collections.Counter"), "")
    module = next((name for name, dotted in source.names.imports.items() if dotted == "collections"), "collections")
    for (start, held), (types, of_kinds) in made.items():
        is_list = next(ListUse(project, source, lookup.held).is_list for lookup, _ in found if _is(lookup.held, held))
        test = f"{{*map(type, {held})}} <= {_SURE}"
        test = test if is_list else f"type({held}) in (list, tuple) and {test}"
        lines = [_making(kind, name, held, counter or f"{module}.Counter", test) for kind, name in of_kinds.items()]
        first = next(iter(of_kinds.values()))
        changes.before(start, *lines, f"{types} = {{*map(type, {first})}}  # others are looked up in {held} itself")
    done = changes.done(project)
    at = project.sources.index(source)
    if is_counting and not counter and module == "collections":
        done = with_import(done, at, "collections")
    try:
        compile(done.sources[at].code, source.shown, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # an assignment in a place that has none
        raise Unplaced from None
    return WrittenEdit(done, changed=1)


class _Names:
    """New names for a file, each another one."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self._given: set[str] = set()

    def new(self, wanted: str) -> str:
        """Return the name that is wanted, or it with a number behind it."""
        name, number = fresh_name(self._source, wanted), 1
        while name in self._given:
            number += 1
            name = fresh_name(self._source, f"{wanted}_{number}")
        self._given.add(name)
        return name


def _making(kind: str, name: str, held: str, counter: str, test: str) -> str:
    """Return the line that makes the dictionary or set; it stays empty where types are unsure."""
    made, empty = {
        "count": (f"{counter}({held})", "{}"),
        "index": (f"dict(zip({held}[::-1], range(len({held}))[::-1]))", "{}"),  # the first place is put in last
        "in": (f"set({held})", "set()"),
    }[kind]
    return f"{name} = {made} if {test} else {empty}"


def _lookup(changes: TextChanges, lookup: _Lookup, held: str, name: str, types: str, names: _Names) -> str:
    sought = first = changes.text(lookup.sought)
    if not isinstance(lookup.sought, ast.Name | ast.Constant):
        sought = names.new("sought")
        first = f"{sought} := {changes.text(lookup.sought)}"
    if lookup.kind == "in":
        test = "not in" if isinstance(lookup.node, ast.Compare) and isinstance(lookup.node.ops[0], ast.NotIn) else "in"
        return f"({sought} {test} {name} if type({first}) in {types} else {sought} {test} {held})"
    known = f" and {sought} in {name}" if lookup.kind == "index" else ""  # ValueError where it is not
    return f"({name}[{sought}] if type({first}) in {types}{known} else {held}.{lookup.kind}({sought}))"


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "list"


def _is(node: ast.expr, text: str) -> bool:
    return ast.unparse(node) == text
