"""Lookups in a list that a loop repeats: `.count()`, `.index()` and `in`, through a dictionary or set made once.

Each of them goes through the list. A set finds the same items as long as what is equal has one hash, which is so for
Python's numbers and strings, and not for tensors or NumPy's numbers: the lookup checks the types, and where these are
others, it is done in the list as before.

Nobody may change the list while the loop runs. That is known of a list that the function makes and keeps to itself
(`reading/lists/own_lists.py`), and of any other one in a loop in which nothing runs but a few plain operations
(`quiet_regions.py`). All other lists are left.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.called_functions import called_at
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.lists.hidden_access import hidden_access, is_of_python
from flatout.edits.reading.lists.own_lists import OwnList, is_read_at_once
from flatout.edits.reading.lists.quiet_regions import QuietRegion
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_dictionaries"]

_SURE = "{bool, float, int, str}"  # types whose equal values have one hash
_NEEDED = ("bool", "dict", "float", "int", "len", "list", "map", "range", "set", "str", "tuple", "type", "zip")
_NEVER = ast.Tuple | ast.List | ast.Dict | ast.Set | ast.ListComp | ast.Lambda  # of types that are not sure
_OTHERS = ast.Set | ast.Dict | ast.SetComp | ast.DictComp | ast.JoinedStr | ast.Constant  # no lists
_FEW = 8  # items of a list that is gone through as fast
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_NOTHING = "lookups in a list that a loop repeats (.count(), .index(), in) are not found here"


@dataclass(frozen=True)
class _Lookup:
    """`groups.count(g)`, `words.index(w)`, `x in seen`: what is sought, in which list."""

    node: ast.Call | ast.Compare
    kind: str
    held: ast.Name | ast.Attribute
    sought: ast.expr

    @property
    def list(self) -> str:
        """The list, as it is named."""
        return ast.unparse(self.held)


@dataclass(frozen=True)
class _Loop:
    """Code that is repeated, as a whole, and the statement before which something is made once for it.

    Attributes:
        appends: where it appends to the list, which is the function's own.
        lists: all that have to have plain items where others hold the list, too; what is sought is plain, then.
        values: variables and attributes that have to be plain then.
    """

    region: Sequence[ast.AST]
    start: ast.stmt
    appends: tuple[ast.Call, ...] = ()
    lists: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


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
    for lookup in _lookups(source, scope):
        loops = [*_loops(source, lookup.node)]
        if not loops or _is_hopeless(scope, lookup):
            continue
        if any(lookup.node in ast.walk(other.node) for other, _ in found):
            continue  # it is part of what another one looks for
        chosen = _outlasted(project, source, scope, lookup, loops)
        if isinstance(chosen, _Loop):
            found.append((lookup, chosen))
        else:
            reasons.append(source.at(lookup.node, chosen))
    return found


def _outlasted(
    project: Project, source: SourceFile, scope: ast.AST, lookup: _Lookup, loops: Sequence[_Loop]
) -> _Loop | str:
    """Return the outermost of the loops around a lookup that its list outlasts, or why there is none."""
    if not isinstance(scope, Function):
        return "new variables of a module would be seen by others: lookups in its own code are left"
    if not is_of_python(source, *_NEEDED):
        others = (name for name in _NEEDED if not is_of_python(source, name))
        return f"{next(others)} may have another meaning in this file"
    hidden = hidden_access(project, source, scope)
    if hidden:
        return f"{hidden} may look into the function, or change what is compared"
    chosen, reason = _own(source, scope, lookup, loops)
    return chosen or _quiet(project, source, scope, lookup, loops) or reason


def _own(source: SourceFile, scope: Function, lookup: _Lookup, loops: Sequence[_Loop]) -> tuple[_Loop | None, str]:
    """Return the outermost of the loops that a list of the function's own outlasts, or None and why."""
    chosen, reason = None, f"{lookup.list} is in other hands, too: it may be changed in the loop"
    own = OwnList(source, scope, lookup.list) if isinstance(lookup.held, ast.Name) else None
    if own is None or own.value is None:
        return None, reason
    if not _is_simple(scope, lookup.sought):
        return None, f"what is sought in {lookup.list} has no name, and would be kept for longer with one"
    for loop in loops:
        changed = own.changes_in(loop.region)
        appends = [each for each in (_append(source, scope, node) for node in changed) if each is not None]
        reason = own.leaves(loop.start)
        reason = reason or (f"{lookup.list} is changed in the loop" if len(changed) != len(appends) else "")
        if reason:
            break
        chosen = _Loop(loop.region, loop.start, tuple(appends))
    return chosen, reason


def _append(source: SourceFile, scope: Function, held: ast.Name) -> ast.Call | None:
    """Return the statement `held.append(name)` that a name stands in, None where it is another one."""
    call = next((each for each in source.above(held) if isinstance(each, ast.Call)), None)
    if call is None or not isinstance(source.parents[call], ast.Expr) or len(call.args) != 1 or call.keywords:
        return None
    function = call.func
    plain = isinstance(function, ast.Attribute) and function.value is held and function.attr == "append"
    return call if plain and _is_simple(scope, call.args[0]) else None


def _quiet(
    project: Project, source: SourceFile, scope: Function, lookup: _Lookup, loops: Sequence[_Loop]
) -> _Loop | None:
    """Return the outermost of the loops in which nothing runs that could change a list, with what has to be tested."""
    chosen = None
    if lookup.kind == "index" and not _is_simple(scope, lookup.sought):
        return None
    for loop in loops:
        region = QuietRegion(project, source, scope, loop.start)
        if not region.is_quiet or lookup.list not in region.lists:
            break
        chosen = _Loop(loop.region, loop.start, (), region.lists, region.values)
    return chosen


def _is_hopeless(scope: ast.AST, lookup: _Lookup) -> bool:
    """Return whether a name is bound to sets, dictionaries or strings, or to a few items that are written out."""
    bound = [value for each in ast.walk(scope) for to, value in pairs(each) if ast.unparse(to) == lookup.list]
    calls = [each.func.id for each in bound if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
    few = [each for each in bound if isinstance(each, ast.List | ast.Tuple) and 0 < len(each.elts) < _FEW]
    adds = (each for each in ast.walk(scope) if isinstance(each, ast.Attribute) and each.attr in ("append", "extend"))
    few = [] if any(ast.unparse(each.value) == lookup.list for each in adds) else few
    others = [each for each in bound if isinstance(each, _OTHERS) and getattr(each, "value", "") is not None]
    return bool(others) or bool({*calls} & {"set", "dict", "frozenset", "str"}) or (bool(few) and len(bound) == 1)


def _is_simple(scope: Function, node: ast.expr) -> bool:
    """Return whether an expression can be read twice: a constant, or a variable of the function's own."""
    if isinstance(node, ast.Constant):
        return True
    if not isinstance(node, ast.Name):
        return False
    own = any(isinstance(each, ast.arg) and each.arg == node.id for each in ast.walk(scope.args))
    for each in ast.walk(scope):
        if isinstance(each, ast.Global | ast.Nonlocal) and node.id in each.names:
            return False
        own |= isinstance(each, ast.Name) and each.id == node.id and not isinstance(each.ctx, ast.Load)
    return own


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
        if kind in ("count", "index", "in") and isinstance(held, ast.Name | ast.Attribute):
            yield _Lookup(node, kind, held, sought)


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
            is_later = isinstance(above, ast.GeneratorExp) and not is_read_at_once(source, above)
            if is_later or any(each.is_async for each in above.generators):
                return
            first = above.generators[0]
            if not (below is first and inner is first.iter):
                yield from _around(source, above)
        below, inner = above, below


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
    made: dict[tuple[object, ...], _Made] = {}
    for lookup, loop in found:
        key, last = (loop.start, lookup.list, loop.lists, loop.appends), _last(lookup.held)
        if key not in made:
            same = [each for each in made.values() if each.loop.start is loop.start and each.loop.lists == loop.lists]
            tested = same[0].is_plain if same and loop.lists else ""  # the same test
            types = "" if loop.lists else names.new(f"types_of_{last}")
            made[key] = _Made(lookup.list, tested or names.new(f"plain_{last}"), types, {}, loop, bool(tested))
        of_kinds = made[key].of_kinds
        if lookup.kind not in of_kinds:
            wanted = {"count": "counts", "index": "places", "in": "set"}[lookup.kind]
            of_kinds[lookup.kind] = names.new("_".join((wanted, "of", last)))
        changes.replace(lookup.node, _lookup(changes, lookup, of_kinds[lookup.kind], made[key]))
    for each in made.values():
        changes.before(each.loop.start, *_making(source, each, names))
        for call in each.loop.appends:
            changes.after(source.statement(call), *_in_step(changes.text(call.args[0]), each))
    done = changes.done(project)
    at = project.sources.index(source)
    try:
        compile(done.sources[at].code, source.shown, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # an assignment in a place that has none
        raise Unplaced from None
    return WrittenEdit(done, changed=1)


@dataclass(frozen=True)
class _Made:
    """What is made of one list before a loop: names of a test, of a set of types, of sets and dictionaries by kinds."""

    list: str
    is_plain: str
    types: str  # "" where what is sought needs no test
    of_kinds: dict[str, str]
    loop: _Loop
    is_tested: bool  # above, by that name


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


def _making(source: SourceFile, made: _Made, names: _Names) -> Iterator[str]:
    """Yield the lines that make the dictionaries and sets of a list; they stay empty where types are unsure."""
    held, plain = made.list, made.is_plain
    if not made.is_tested:
        yield f"{plain} = {_test(held, made.loop)}"
    for kind, name in made.of_kinds.items():
        if kind == "in":
            yield f"{name} = set({held} if {plain} else ())"
        elif kind == "index":  # the first place is put in last
            yield f"{name} = dict(zip({held}[::-1], range(len({held}))[::-1])) if {plain} else {{}}"
        else:
            counter = _counter(source, made.loop.start)
            if not counter:
                counter = names.new("Counter")
                yield "from collections import Counter" + (f" as {counter}" if counter != "Counter" else "")
            yield f"{name} = {counter}({held} if {plain} else ())"
    if made.types:
        yield f"{made.types} = {_SURE} if {plain} else set()  # others are looked up in {held} itself"


def _test(held: str, loop: _Loop) -> str:
    """Return the test that all that has to be plain is."""
    types = ", ".join((f"*map(type, {held})", *(f"type({each})" for each in loop.values)))
    test = f"type({held}) in (list, tuple) and {{{types}}} <= {_SURE}"
    for each in loop.lists:
        test += f" and type({each}) in (list, tuple) and {{*map(type, {each})}} <= {_SURE}" if each != held else ""
    return test


def _in_step(added: str, made: _Made) -> Iterator[str]:
    """Yield the lines that add to the dictionaries and sets what was appended to their list."""
    yield f"if type({added}) in {made.types}:"
    for kind, name in made.of_kinds.items():
        if kind == "in":
            yield f"    {name}.add({added})"
        elif kind == "index":
            yield f"    {name}.setdefault({added}, len({made.list}) - 1)"
        else:
            yield f"    {name}[{added}] += 1"
    yield "else:"
    yield f"    {made.types}.clear()"


def _counter(source: SourceFile, start: ast.stmt) -> str:
    """Return what `collections.Counter` is called where a statement stands, "" where no import above it says so."""
    outer = [start, *source.above(start)][-2]  # what stands in the module itself
    above = [each for each in source.tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    above = [each for each in above if each.lineno < outer.lineno]  # type: ignore[attr-defined]
    everywhere = [each for each in ast.walk(source.tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    for name, dotted in source.names.imports.items():
        bound = [each for each in everywhere if any((a.asname or a.name) == name for a in each.names)]
        if dotted in ("collections", "collections.Counter") and bound and all(each in above for each in bound):
            return name if dotted.endswith("Counter") else f"{name}.Counter"
    return ""


def _lookup(changes: TextChanges, lookup: _Lookup, name: str, made: _Made) -> str:
    sought = changes.text(lookup.sought)
    test = f"type({sought}) in {made.types}" if made.types else made.is_plain
    if lookup.kind == "in":
        word = "not in" if isinstance(lookup.node, ast.Compare) and isinstance(lookup.node.ops[0], ast.NotIn) else "in"
        return f"({sought} {word} {name} if {test} else {sought} {word} {lookup.list})"
    known = f" and {sought} in {name}" if lookup.kind == "index" else ""  # ValueError where it is not
    return f"({name}[{sought}] if {test}{known} else {lookup.list}.{lookup.kind}({sought}))"


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id
