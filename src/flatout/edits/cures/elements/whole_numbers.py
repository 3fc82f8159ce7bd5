"""Expressions that are whole numbers of Python's own, whatever a script is given: an array and a tensor index alike.

`True`, numbers of NumPy's, lists, masks and slices are other indices, and mean other places in the two. What counts is
what `range`, `enumerate`, `len`, `int` and `"ACGT".index` give, what is computed from such numbers, and the values of
dictionaries that nothing changes.
"""

import ast
from dataclasses import dataclass
from functools import cached_property

from flatout.edits.cures.elements.function_loops import LoopsOf, calls_builtin
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.source_file import SourceFile

__all__ = ["Numbers"]

_KEEPS_WHOLE = (
    ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod | ast.BitAnd | ast.BitOr | ast.BitXor | ast.LShift
    | ast.RShift
)  # fmt: skip
_OF_TEXT = frozenset({"count", "find", "index", "rfind", "rindex"})
_WALKS = ("len", "sorted", "enumerate", "print")
_METHODS = frozenset({"get", "items", "keys", "values"})
_DEPTH = 8


@dataclass(frozen=True)
class Numbers:
    """The numbers of a function; `parts`: how many steps are followed."""

    loops: LoopsOf
    depth: int = _DEPTH

    def is_whole(self, node: ast.expr) -> bool:
        """Return whether an expression is a whole number, and neither True nor False."""
        return self._is_number(node, frozenset(), real=False)

    def is_counted(self, node: ast.expr) -> bool:
        """Return whether an expression is a whole number that is found without running code of the user's."""
        runs = any(isinstance(each, ast.Call | ast.Subscript) for each in ast.walk(node))
        return not runs and self.is_whole(node)

    def is_real(self, node: ast.expr) -> bool:
        """Return whether an expression is a number of Python's, so that adding to it changes nothing in place."""
        return self._is_number(node, frozenset(), real=True)

    def is_text(self, node: ast.expr) -> bool:
        """Return whether an expression is a text in sight, or a name that stands for one alone."""
        if isinstance(node, ast.Name):
            value = self._constant(node)
            return value is not None and isinstance(value, ast.Constant) and type(value.value) is str
        return isinstance(node, ast.Constant) and type(node.value) is str

    # -- expressions --------------------------------------------------------------------------------------------

    def _is_number(self, node: ast.expr, under: frozenset[str], *, real: bool) -> bool:
        """`under`: names that are being asked about; they are numbers where all else that they are bound to is."""
        if isinstance(node, ast.Constant):
            return type(node.value) is int or (real and type(node.value) in (float, bool))
        if isinstance(node, ast.UnaryOp):
            return not isinstance(node.op, ast.Not) and self._is_number(node.operand, under, real=real)
        if isinstance(node, ast.BinOp):
            kept = isinstance(node.op, _KEEPS_WHOLE) or (real and isinstance(node.op, ast.Div))
            return kept and all(self._is_number(each, under, real=real) for each in (node.left, node.right))
        if isinstance(node, ast.IfExp):
            return all(self._is_number(each, under, real=real) for each in (node.body, node.orelse))
        if isinstance(node, ast.Call):
            return self._is_made(node, under, real=real)
        if isinstance(node, ast.Subscript):
            return not isinstance(node.slice, ast.Slice) and self._is_table(node.value)
        return isinstance(node, ast.Name) and self._is_name(node, under, real=real)

    def _is_made(self, call: ast.Call, under: frozenset[str], *, real: bool) -> bool:
        if calls_builtin(self.loops.source, call, ("int", "len", "ord")):
            return True
        if calls_builtin(self.loops.source, call, ("abs", "min", "max")):
            given = [self._is_number(each, under, real=real) for each in call.args]
            return not call.keywords and all(given) and (len(given) > 1 or ast.unparse(call.func) == "abs")
        if real and calls_builtin(self.loops.source, call, ("float",)):
            return True
        if isinstance(call.func, ast.Attribute):
            if call.func.attr == "get" and len(call.args) == 2 and self._is_table(call.func.value):
                return self._is_number(call.args[1], under, real=real)
            return call.func.attr in _OF_TEXT and self.is_text(call.func.value)
        return self._is_given(call)

    def _is_given(self, call: ast.Call) -> bool:
        """Return whether a call is one of a function of the user's that gives whole numbers."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        known = self.loops.project.functions.get(name, ())
        if len(known) != 1 or not self.depth or self._is_bound(name) or name in self.loops.project.classes:
            return False
        (source, function), loops = known[0], self.loops
        if source is not loops.source or function not in source.tree.body or isinstance(function, ast.AsyncFunctionDef):
            return False
        inner = Numbers(LoopsOf(loops.project, source, function), self.depth - 1)
        own = [each for each in ast.walk(function) if source.scope(each) is function]
        given = [each.value for each in own if isinstance(each, ast.Return)]
        yields = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own)
        whole = all(value is not None and inner.is_whole(value) for value in given)
        return whole and not yields and not function.decorator_list and isinstance(function.body[-1], ast.Return)

    def _is_bound(self, name: str) -> bool:
        """Return whether a name of the file is bound by anything but the one definition of a function."""
        inside = [*ast.walk(self.loops.source.tree)]
        bound = {each.id for each in inside if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
        bound |= {each.arg for each in inside if isinstance(each, ast.arg)} | {*self.loops.source.names.imports}
        others = [each for each in inside if isinstance(each, ast.ExceptHandler | ast.MatchAs | ast.MatchStar)]
        bound |= {each.name or "" for each in others}
        attributes = (each for _, each in self.loops.project.nodes(ast.Attribute))
        return name in bound or any(each.attr == name and isinstance(each.ctx, ast.Store) for each in attributes)

    # -- names --------------------------------------------------------------------------------------------------

    def _is_name(self, node: ast.Name, under: frozenset[str], *, real: bool) -> bool:
        name, loops = node.id, self.loops
        if name in under:
            return True
        stored = loops.stored(name)
        if not stored and name not in loops.arguments:
            value = self._constant(node)
            return value is not None and self._is_number(value, under, real=real)
        if name in loops.arguments | loops.unfollowed or not stored:
            return False
        under = under | {name}
        whole = {each for each, value in self._assigned if each in stored and self._is_number(value, under, real=real)}
        whole |= {*stored} & self._counts
        return whole == {*stored}

    @cached_property
    def _assigned(self) -> list[tuple[ast.expr, ast.expr]]:
        """Targets with values; for `n += 1` what the sum is made of."""
        inside = [*ast.walk(self.loops.scope)]
        found = [pair for each in inside for pair in pairs(each)]
        added = [each for each in inside if isinstance(each, ast.AugAssign)]
        return found + [(each.target, ast.BinOp(each.target, each.op, each.value)) for each in added]

    @cached_property
    def _counts(self) -> set[ast.Name]:
        """Names that loops give whole numbers to: by `range`, and what `enumerate` counts."""
        loops = [each for each in ast.walk(self.loops.scope) if isinstance(each, ast.For | ast.comprehension)]
        return {name for each in loops for name in self._counted(each.target, each.iter)}

    def _counted(self, target: ast.expr, over: ast.expr) -> set[ast.Name]:
        source = self.loops.source
        if isinstance(target, ast.Name):
            return {target} if calls_builtin(source, over, ("range",)) else set()
        if not isinstance(target, ast.Tuple) or not isinstance(over, ast.Call):
            return set()
        if calls_builtin(source, over, ("enumerate",)) and len(target.elts) == 2 and over.args:
            first, inner = target.elts
            return ({first} if isinstance(first, ast.Name) else set()) | self._counted(inner, over.args[0])
        if calls_builtin(source, over, ("zip",)) and len(target.elts) == len(over.args):
            found = (self._counted(*each) for each in zip(target.elts, over.args, strict=True))
            return {name for each in found for name in each}
        return set()

    # -- constants and tables -----------------------------------------------------------------------------------

    def _constant(self, node: ast.Name) -> ast.expr | None:
        """Return what a name of the file, or of the function, is bound to once and for all."""
        source, name, tree = self.loops.source, node.id, self._file
        stored, values = tree.stored(name), tree.bound(name)
        if len(stored) != 1 or len(values) != 1 or name in tree.unfollowed | source.names.imports.keys():
            return None
        others = [place for place in self.loops.project.sources if place is not source]
        said = {each.name for place in others for each in ast.walk(place.tree) if isinstance(each, ast.alias)}
        set_ = {each.attr for _, each in self.loops.project.nodes(ast.Attribute) if not isinstance(each.ctx, ast.Load)}
        home = source.scope(stored[0])
        is_seen = home is source.tree or home is self.loops.scope
        return values[0] if is_seen and name not in set_ and "*" not in said else None

    @cached_property
    def _file(self) -> LoopsOf:
        return LoopsOf(self.loops.project, self.loops.source, self.loops.source.tree)

    def _is_table(self, node: ast.expr) -> bool:
        """Return whether a name stands for a dictionary of whole numbers that nothing changes."""
        value = self._constant(node) if isinstance(node, ast.Name) else None
        if isinstance(value, ast.Dict):
            whole = all(isinstance(each, ast.Constant) and type(each.value) is int for each in value.values)
        elif isinstance(value, ast.DictComp):
            made = Numbers(LoopsOf(self.loops.project, self.loops.source, value))
            whole = made.is_whole(value.value)
        else:
            return False
        assert isinstance(node, ast.Name)
        return whole and self._is_kept(node.id)

    def _is_kept(self, name: str) -> bool:
        """Return whether a dictionary is only looked up and walked, and no other file has it."""
        source = self.loops.source
        for place in self.loops.project.sources:
            for each in ast.walk(place.tree):
                if isinstance(each, ast.alias) and each.name == name:
                    return False
                if isinstance(each, ast.Attribute) and each.attr == name:
                    return False
                if place is not source or not isinstance(each, ast.Name) or each.id != name:
                    continue
                if isinstance(each.ctx, ast.Load) and not _is_lookup(source, each):
                    return False
        return True


def _is_lookup(source: SourceFile, node: ast.Name) -> bool:
    above = source.parents[node]
    if isinstance(above, ast.Subscript):
        return above.value is node and isinstance(above.ctx, ast.Load)
    if isinstance(above, ast.Attribute):
        called = source.parents[above]
        return above.attr in _METHODS and isinstance(called, ast.Call) and called.func is above
    if isinstance(above, ast.Compare):
        return node in above.comparators and all(isinstance(each, ast.In | ast.NotIn) for each in above.ops)
    if isinstance(above, ast.For | ast.comprehension):
        return above.iter is node
    return calls_builtin(source, above, _WALKS)
