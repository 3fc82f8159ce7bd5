"""Elements of tensors that a Python loop reads one by one: as numbers, of an array in the same memory.

Each element of `for t in labels.view(-1)` is a tensor of its own, of 2 to 5 us, and each `matrix[t, p]` reads it again.
They are read as numbers where a number and a tensor of one element mean the same alone: as an index, compared with
whole numbers and with each other, and by `int`, `float` and `bool`. All that a loop reads so becomes numbers together
or not at all: where the arrays are made, the edited code asks whether all are plain tensors of int64 in one dimension.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from flatout.edits.cures.elements.function_loops import Loop, LoopsOf, calls_builtin
from flatout.edits.cures.elements.quiet_turns import is_quiet, until_last
from flatout.edits.cures.elements.whole_numbers import Numbers
from flatout.edits.cures.item_reads import Item, items_in_loops

__all__ = ["Element", "Reads", "candidates", "is_flat", "reads_in_loops"]

_CONVERTS = ("bool", "float", "int")
_FLAT = frozenset({"flatten", "ravel"})
_SHAPED = frozenset({"reshape", "view"})  # to one dimension, by -1
_EXACT = 2**24
_ORDERS = ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE


@dataclass(frozen=True)
class Element:
    """A name that a loop gives the elements of something to, and the statement before which the array is to be made."""

    name: str
    whole: ast.expr
    loop: Loop
    anchor: ast.stmt


@dataclass(frozen=True)
class Reads:
    """What is read as numbers. `writes`: items that are written by number, with the statements of their arrays."""

    loops: LoopsOf
    elements: tuple[Element, ...]
    items: tuple[Item, ...]
    writes: dict[ast.Subscript, ast.stmt]

    @cached_property
    def numbers(self) -> Numbers:
        """The numbers of the function."""
        return Numbers(self.loops)

    def anchor_of(self, node: ast.expr) -> ast.stmt | None:
        """Return where the array is made that a name, or an item, is a number of; None where it is of none."""
        if isinstance(node, ast.Name):
            return next((each.anchor for each in self.elements if each.name == node.id), None)
        return next((each.anchor for each in self.items if each.node is node), None)

    def containers(self, anchor: ast.stmt) -> list[str]:
        """Return what else is indexed by the elements of a loop, and may be anything."""
        found = []
        for each in (each for each in self.elements if each.anchor is anchor):
            for node in self.loops.named[each.name]:
                place = _place(self.loops, node)
                known = {id(item.node) for item in self.items} | {id(write) for write in self.writes}
                if place is not None and id(place) not in known:
                    found.append(ast.unparse(place.value))
        return sorted({*found})

    # -- what means the same ------------------------------------------------------------------------------------

    def is_element(self, each: Element) -> bool:
        """Return whether all that is done with a name is alike for a number."""
        loops, inside = self.loops, _turn(self.loops, each.loop)
        uses = loops.named[each.name]
        read = [node for node in uses if isinstance(node.ctx, ast.Load)]
        if each.name in loops.unfollowed | loops.arguments or len(uses) != len(read) + 1 or not read:
            return False
        if not {*read} <= inside or any(loops.outermost(node) is None for node in read):
            return False
        return all(map(self.means_the_same, read)) and self._is_first(each, {*read})

    def is_item(self, each: Item) -> bool:
        """Return whether an item may be a number: what it is used for, and what it is picked by."""
        index = each.node.slice
        number = isinstance(index, ast.Name) and self.anchor_of(index) is each.anchor
        return self.means_the_same(each.node) and (number or self.numbers.is_counted(index))

    def means_the_same(self, node: ast.expr) -> bool:
        """Return whether a use of an element gives the same for a number."""
        source = self.loops.source
        above = source.parents[node]
        if isinstance(above, ast.Call):
            return calls_builtin(source, above, _CONVERTS) and above.args == [node] and not above.keywords
        if isinstance(above, ast.Compare):
            plain = all(isinstance(each, _ORDERS) for each in above.ops) and self._is_asked(above)
            return plain and all(self._is_beside(each, node) for each in (above.left, *above.comparators))
        place = _place(self.loops, node)
        return place is not None and self._is_place(place, self.anchor_of(node))

    def _is_place(self, place: ast.Subscript, anchor: ast.stmt | None) -> bool:
        """Return whether what an element is an index of is an array of its own loop, or asked about there."""
        if anchor is None:
            return False
        item = next((each for each in self.items if each.node is place), None)
        if item is not None or place in self.writes:
            return (item.anchor if item else self.writes[place]) is anchor
        if not isinstance(place.ctx, ast.Load) or not isinstance(place.value, ast.Name):
            return False
        parts = place.slice.elts if isinstance(place.slice, ast.Tuple) else [place.slice]
        known = [self.numbers.is_counted(each) or self.anchor_of(each) is anchor for each in parts]
        return all(known) and self.loops.keeps(place.value.id, anchor)

    def _is_beside(self, node: ast.expr, other: ast.expr) -> bool:
        """Return whether an element may be compared with this: a whole number, or an element of the same arrays."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node = node.operand
        if isinstance(node, ast.Constant):
            return type(node.value) is int and abs(node.value) <= _EXACT
        anchor = self.anchor_of(node)
        return anchor is not None and anchor is self.anchor_of(other)

    def _is_asked(self, node: ast.expr) -> bool:
        """Return whether a comparison is asked for its truth alone."""
        source = self.loops.source
        above = source.parents[node]
        if isinstance(above, ast.BoolOp) or (isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not)):
            return self._is_asked(above)
        if isinstance(above, ast.If | ast.While | ast.IfExp):
            return above.test is node
        if isinstance(above, ast.comprehension):
            return node in above.ifs
        return calls_builtin(source, above, _CONVERTS)

    # -- what runs before the last use --------------------------------------------------------------------------

    def _is_first(self, each: Element, read: set[ast.AST]) -> bool:
        """Return whether nothing may write to the tensor between the turn's beginning and the last use."""
        if not self._is_read_last(each):
            return False
        if isinstance(each.loop, ast.For):
            return self.is_quiet(until_last(each.loop.body, read), each.anchor)
        made = self.loops.source.parents[each.loop]
        assert isinstance(made, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
        given = [made.key, made.value] if isinstance(made, ast.DictComp) else [made.elt]
        if len(made.generators) == 1:
            return self.is_quiet(until_last([*each.loop.ifs, *given], read), each.anchor)
        return self.is_quiet({*ast.walk(made)} - {made}, each.anchor)

    def _is_read_last(self, each: Element) -> bool:
        """Return whether a loop walks nothing but elements and counts after giving the name its value."""
        behind = _behind(self.loops, each.loop.target, each.loop.iter, each.name)
        return behind is not None and all(self._is_walked(*pair, each.anchor) for pair in behind)

    def _is_walked(self, target: ast.expr, whole: ast.expr, anchor: ast.stmt) -> bool:
        """Return whether a part of a loop's head gives elements that are made into numbers there, or counts."""
        if isinstance(target, ast.Name):
            alike = [each for each in self.elements if each.whole is whole and each.anchor is anchor]
            return bool(alike) or _is_count(self.loops, whole)
        if isinstance(target, ast.Tuple) and isinstance(whole, ast.Call):
            return all(self._is_walked(*pair, anchor) for pair in _parts(self.loops, target, whole))
        return False

    def is_quiet(self, nodes: Iterable[ast.AST], anchor: ast.stmt) -> bool:
        """Return whether nothing runs but what works on numbers, where the arrays of `anchor` are made."""
        loops = self.loops
        heads: set[ast.AST] = set()
        for loop in (each for each in ast.walk(loops.scope) if isinstance(each, Loop)):
            if (loop is anchor or not _has_flat(loop.iter)) and self._is_walked(loop.target, loop.iter, anchor):
                heads |= {*ast.walk(loop.iter), *ast.walk(loop.target)}
        places = {_place(loops, node) for each in self.elements if each.anchor is anchor for node in self._uses(each)}
        places |= {each.node for each in self.items if each.anchor is anchor}
        places |= {node for node, made in self.writes.items() if made is anchor or self._is_by_counts(node)}
        heads |= {part for node in ast.walk(loops.scope) for part in self._shown(node, anchor)}
        heads |= {part for node in self.writes if node in places for part in ast.walk(node.value)}  # `self.matrix`
        return is_quiet(
            loops,
            nodes,
            lambda node: node in heads or node in places,
            lambda node: isinstance(node, ast.expr) and self.anchor_of(node) is anchor,
        )

    def _shown(self, node: ast.AST, anchor: ast.stmt) -> list[ast.AST]:
        """Return the parts of `len(labels)`, or `labels.shape`, of what is asked whether it is a tensor."""
        known = {ast.unparse(each.whole) for each in self.elements if each.anchor is anchor}
        known |= {each.whole for each in self.items if each.anchor is anchor}
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "size", "numel"):
            above = self.loops.source.parents[node]
            call = [above] if isinstance(above, ast.Call) and above.func is node else []
            return [node, *call] if ast.unparse(node.value) in known else []
        if isinstance(node, ast.Call) and calls_builtin(self.loops.source, node, ("len",)):
            return [node] if {ast.unparse(each) for each in node.args} <= known else []
        return []

    def _is_by_counts(self, node: ast.Subscript) -> bool:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return all(map(self.numbers.is_whole, parts))

    def _uses(self, each: Element) -> list[ast.Name]:
        return [node for node in self.loops.named[each.name] if isinstance(node.ctx, ast.Load)]


def candidates(loops: LoopsOf) -> Reads:
    """Return what the loops of a function may read as numbers, as far as where it stands tells."""
    source = loops.source
    own = [node for node in ast.walk(loops.scope) if isinstance(node, Loop) and source.scope(node) is loops.scope]
    found = tuple(each for loop in own for each in _of(loops, loop.target, loop.iter, loop))
    return Reads(loops, found, tuple(items_in_loops(loops, {each.name: each.anchor for each in found})), {})


def reads_in_loops(reads: Reads) -> Reads:
    """Return those of the candidates that mean the same as numbers."""
    while True:  # what is compared with an element that stays one stays, too
        elements = tuple(each for each in reads.elements if reads.is_element(each))
        items = tuple(each for each in reads.items if reads.is_item(each))
        if (elements, items) == (reads.elements, reads.items):
            return reads
        reads = replace(reads, elements=elements, items=items)


# -- heads of loops ---------------------------------------------------------------------------------------------


def _of(loops: LoopsOf, target: ast.expr, whole: ast.expr, loop: Loop) -> Iterator[Element]:
    """Yield the names that a loop gives elements to: directly, by `zip` and by `enumerate`."""
    if isinstance(target, ast.Name):
        anchor = _anchor(loops, whole, loop)
        if anchor is not None and (not is_flat(whole) or _is_plain_head(loops, loop.iter)):
            yield Element(target.id, whole, loop, anchor)
    elif isinstance(target, ast.Tuple) and isinstance(whole, ast.Call):
        for pair in _parts(loops, target, whole):
            yield from _of(loops, *pair, loop)


def _parts(loops: LoopsOf, target: ast.Tuple, whole: ast.Call) -> list[tuple[ast.expr, ast.expr]]:
    """Return what `zip`, or `enumerate`, gives to which target: elements alone, without what it counts."""
    if not whole.keywords and calls_builtin(loops.source, whole, ("zip",)) and len(target.elts) == len(whole.args):
        return [*zip(target.elts, whole.args, strict=True)]
    counted = calls_builtin(loops.source, whole, ("enumerate",)) and len(target.elts) == 2 and not whole.keywords
    plain = counted and all(isinstance(each, ast.Constant) for each in whole.args[1:])
    return [(target.elts[1], whole.args[0])] if plain and whole.args else []


def _behind(loops: LoopsOf, target: ast.expr, whole: ast.expr, name: str) -> list[tuple[ast.expr, ast.expr]] | None:
    """Return what a loop's head walks after it has given a name its element; None where it gives it none."""
    if isinstance(target, ast.Name):
        return [] if target.id == name else None
    pairs = _parts(loops, target, whole) if isinstance(target, ast.Tuple) and isinstance(whole, ast.Call) else []
    for at, pair in enumerate(pairs):
        found = _behind(loops, *pair, name)
        if found is not None:
            return found + pairs[at + 1 :]
    return None


def _anchor(loops: LoopsOf, whole: ast.expr, loop: Loop) -> ast.stmt | None:
    """Return the statement before which the array of a loop's tensor is to be made; None where it cannot be."""
    own = loop if isinstance(loop, ast.For) else loops.source.statement(loop)
    if is_flat(whole):
        return loop if isinstance(loop, ast.For) else None
    if not isinstance(whole, ast.Name):
        return None
    outer = loops.outermost(loop.body[0] if isinstance(loop, ast.For) else loop.target)
    if outer is None:
        return None
    return next((each for each in (outer, own) if loops.keeps(whole.id, each)), None)


def _is_count(loops: LoopsOf, whole: ast.expr) -> bool:
    """Return whether an expression is a `range` of names and numbers."""
    if not calls_builtin(loops.source, whole, ("range",)):
        return False
    assert isinstance(whole, ast.Call)
    plain = [isinstance(each, ast.Constant) or Numbers(loops).is_whole(each) for each in whole.args]
    return all(plain) and not whole.keywords


def _is_plain_head(loops: LoopsOf, whole: ast.expr) -> bool:
    """Return whether a loop's head runs nothing but what makes flat tensors, in whatever order."""
    if isinstance(whole, ast.Name | ast.Constant) or is_flat(whole) or _is_count(loops, whole):
        return True
    walks = calls_builtin(loops.source, whole, ("zip", "enumerate"))
    return walks and isinstance(whole, ast.Call) and all(_is_plain_head(loops, each) for each in whole.args)


def _turn(loops: LoopsOf, loop: Loop) -> set[ast.AST]:
    """Return what runs in the turns of a loop."""
    if isinstance(loop, ast.For):
        return {node for each in loop.body for node in ast.walk(each)}
    return {*ast.walk(loops.source.parents[loop])}


def _has_flat(whole: ast.expr) -> bool:
    return any(isinstance(each, ast.expr) and is_flat(each) for each in ast.walk(whole))


def is_flat(whole: ast.expr) -> bool:
    """Return whether an expression is a tensor or array in one dimension: `x.view(-1)`, `x.flatten()`."""
    if not isinstance(whole, ast.Call) or not isinstance(whole.func, ast.Attribute) or whole.keywords:
        return False
    shaped = whole.func.attr in _SHAPED and [ast.unparse(each) for each in whole.args] == ["-1"]
    root = whole.func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and (shaped or (whole.func.attr in _FLAT and not whole.args))


def _place(loops: LoopsOf, node: ast.expr) -> ast.Subscript | None:
    """Return the item that an element is an index of, alone or among others."""
    above = loops.source.parents[node]
    if isinstance(above, ast.Tuple):
        node, above = above, loops.source.parents[above]
    return above if isinstance(above, ast.Subscript) and above.slice is node else None
