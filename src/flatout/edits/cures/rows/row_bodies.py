"""What the body of a loop computes of its rows: read as a function of them, in operations that are known."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from flatout.edits.cures.rows.row_loops import RowLoop, is_one_long
from flatout.edits.cures.rows.row_names import bound_in, has_docstring, plain_arguments
from flatout.edits.cures.rows.row_operations import (
    FUNCTIONS,
    GROWING,
    LOSSES,
    MAKERS,
    METHODS,
    NUMBERS,
    OF_TENSORS,
    ROWS_ALONE,
)
from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.text_changes import fresh_name

__all__ = ["NotOfRows", "RowBody", "RowFacts"]

_SUMS = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv | ast.Mod | ast.Pow | ast.MatMult
_MASKING = ast.BitAnd | ast.BitOr | ast.BitXor
_COMPARES = ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE
_OF_ALL = frozenset({"shape", "dtype", "device", "ndim"})  # attributes that are the same for each row
_PARTS = frozenset({"T", "mT", "values", "indices"})
_MASKS = frozenset({"isnan", "isinf", "isfinite", "isclose", "bool", "eq", "ne", "lt", "le", "gt", "ge"})
_DEPTH = 3  # functions within functions

Cut = tuple[ast.expr, ast.expr | None, str]
"""A node, or what of it stands before another node, and what is written in its place."""


class NotOfRows(Exception):
    """A body does more than to compute something of its own row; the reason is its text."""


@dataclass
class RowFacts:
    """What is found out about a body.

    Attributes:
        params: what has the rows, as it is written, with the name of one row.
        tensors: what else has to be a tensor.
        operands: what else is computed with, and may be a number.
        outer: all that is read and is not the loop's own.
        cuts: what is written otherwise where a row has a name.
        grows: whether values may have more elements than what they are made of.
        counts: whether the number of the turn itself is computed with.
    """

    params: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, None] = field(default_factory=dict)
    operands: dict[str, None] = field(default_factory=dict)
    outer: dict[str, ast.expr] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    grows: bool = False
    counts: bool = False


class RowBody:
    """Reads expressions in the body of a loop, or of a function that it calls."""

    def __init__(self, project: Project, source: SourceFile, loop: RowLoop | None, facts: RowFacts) -> None:
        """Begin with the rows alone; `loop` is None for a function."""
        self._project, self._source, self._loop, self.facts = project, source, loop, facts
        self._bound = bound_in(loop.node) if loop is not None else set()
        self._tensors: set[str] = set()
        self._numbers: set[str] = set()
        self._masks: set[str] = set()
        self._anew: set[str] = set()
        self._depth = 0
        if loop is not None:
            self._tensors |= {*loop.rows}
            facts.params.update({ast.unparse(whole): name for name, whole in loop.rows.items()})

    # -- statements ---------------------------------------------------------------------------------------------

    def binds(self, statement: ast.stmt) -> None:
        """Read `name = value`; both names of `a, b = value` are tensors."""
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        names = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
        is_known = isinstance(statement, ast.Assign) and len(targets) == 1
        if not is_known or not all(isinstance(each, ast.Name) for each in names):
            raise NotOfRows(f"`{ast.unparse(statement).splitlines()[0]}` does more than to compute something of a row")
        assert isinstance(statement, ast.Assign)
        self.value(statement.value)
        is_mask, of_row = self._is_mask(statement.value), self.has_row(statement.value)
        for each in names:
            assert isinstance(each, ast.Name)
            if self._is_index(each):
                raise NotOfRows(f"{each.id} is bound anew in the loop")
            self._anew.add(each.id)
            for kind, is_one in ((self._tensors, of_row), (self._numbers, not of_row), (self._masks, is_mask)):
                (kind.add if is_one else kind.discard)(each.id)

    def has_row(self, node: ast.AST) -> bool:
        """Return whether a value is a tensor made of the row, and not only its shape."""
        if isinstance(node, ast.Attribute) and node.attr in _OF_ALL:
            return False
        if isinstance(node, ast.Call):
            is_length = isinstance(node.func, ast.Name) and node.func.id == "len"
            if is_length or (isinstance(node.func, ast.Attribute) and node.func.attr in NUMBERS):
                return False
        if isinstance(node, ast.Name) and (node.id in self._tensors or self._is_index(node)):
            return True
        return any(self.has_row(each) for each in ast.iter_child_nodes(node))

    # -- expressions --------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> None:
        """Read an expression.

        Raises:
            NotOfRows: something in it is not known to be of one row alone.
        """
        match node:
            case ast.Constant(value=int() | float() | str() | None):
                pass
            case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call():
                self._read(node)
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _SUMS | _MASKING):
                self.facts.grows |= isinstance(op, ast.MatMult)
                self._operand(left)
                self._operand(right)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
                self.value(operand)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARES):
                self._operand(left, may_count=True)
                self._operand(right, may_count=True)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for each in parts:
                    self.value(each)
            case _:
                raise NotOfRows(f"`{ast.unparse(node)}` is nothing that is known to be done to many rows at once")

    def _read(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Attribute):
            self._attribute(node)
        elif isinstance(node, ast.Subscript):
            self._item(node)
        elif isinstance(node, ast.Call):
            self._call(node)

    def _operand(self, node: ast.expr, *, may_count: bool = False) -> None:
        if may_count and self._is_index(node):
            self.facts.counts = True
            return
        self.value(node)
        if is_plain(node) and ast.unparse(node) in self.facts.outer:
            self.facts.operands[ast.unparse(node)] = None

    def _name(self, node: ast.Name) -> None:
        if node.id in self._tensors | self._numbers:
            return
        if self._is_index(node):
            raise NotOfRows(f"{node.id} is used for more than to pick a row")
        if node.id in self._bound or (self._loop is None and node.id in bound_in(self._source.scope(node))):
            raise NotOfRows(f"{node.id} is read before the turn has bound it")
        self._outer(node)

    def _outer(self, node: ast.expr) -> None:
        self.facts.outer.setdefault(ast.unparse(node), node)

    def _attribute(self, node: ast.Attribute) -> None:
        if self._source.names.dotted(node):
            if not self._source.names.dotted(node).startswith(("torch.", "math.")):
                self._outer(node)
            return
        if node.attr in self._project.functions:
            raise NotOfRows(f"{ast.unparse(node)} may be a property")
        if node.attr in _OF_ALL or (node.attr in _PARTS and ast.unparse(node.value) != "self"):
            self.value(node.value)
            if node.attr in ("T", "mT") and ast.unparse(node.value) in self.facts.outer and self._loop is not None:
                self.facts.tensors[ast.unparse(node.value)] = None
        elif is_plain(node) and not self._is_own(node):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            self._passing(root)
            self._outer(node)
        else:
            raise NotOfRows(f"{ast.unparse(node)} is nothing that is known of tensors")

    def _passing(self, node: ast.expr) -> None:
        """Read a name that stands for a part of it alone."""
        is_known = ast.unparse(node) in self.facts.outer
        self.value(node)
        if not is_known:
            self.facts.outer.pop(ast.unparse(node), None)

    def _is_own(self, node: ast.expr) -> bool:
        return any(
            isinstance(each, ast.Name) and (each.id in self._tensors | self._numbers or self._is_index(each))
            for each in ast.walk(node)
        )

    def _is_index(self, node: ast.AST) -> bool:
        index = self._loop.index if self._loop is not None else ""
        return isinstance(node, ast.Name) and bool(index) and node.id == index

    # -- parts --------------------------------------------------------------------------------------------------

    def _item(self, node: ast.Subscript) -> None:
        if self._is_row(node):
            return
        self.value(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        picks = [each for each in parts if self._part(each)]
        whole = ast.unparse(node.value)
        if picks and whole in self.facts.outer:
            if self._loop is None:
                raise NotOfRows(f"{whole} may be no tensor")
            self.facts.tensors[whole] = None
        elif picks and not self.has_row(node.value):
            raise NotOfRows(f"{whole} may be no tensor")

    def _part(self, node: ast.expr) -> bool:
        """Read what stands in brackets; return whether rows are picked by a tensor of the turn."""
        if isinstance(node, ast.Slice):
            for each in filter(None, (node.lower, node.upper, node.step)):
                self.value(each)
                if self.has_row(each):
                    raise NotOfRows("the length of a part depends on the row")
            return False
        self.facts.grows |= isinstance(node, ast.Constant) and node.value is None
        if isinstance(node, ast.Constant) and node.value is ...:
            return False
        self.value(node)
        if self._is_mask(node):
            raise NotOfRows("a mask picks another number of elements for each row")
        return self.has_row(node)

    def _is_mask(self, node: ast.expr) -> bool:
        match node:
            case ast.Compare():
                return True
            case ast.UnaryOp(operand=operand):
                return self._is_mask(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return isinstance(op, _MASKING) and (self._is_mask(left) or self._is_mask(right))
            case ast.Name(id=name):
                return name in self._masks
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in _MASKS or name.startswith("logical_")
        return False

    def _is_row(self, node: ast.Subscript) -> bool:
        """Give the row that a turn cuts out by its number a name, where it is one: x[i], x[i, ...], x[i : i + 1]."""
        if self._loop is None or not is_plain(node.value) or self._is_own(node.value):
            return False
        first, *rest = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        is_one = isinstance(first, ast.Slice) and is_one_long(first, self._loop.index) and not rest
        if not (self._is_index(first) or is_one):
            return False
        self._passing(node.value)
        whole = ast.unparse(node.value)
        name = self.facts.params.setdefault(whole, self._fresh(whole))
        if name in self._anew:
            raise NotOfRows(f"{name} is no row of {whole} any more")
        self._tensors.add(name)
        if rest:
            for each in rest:
                self._part(each)
            self.facts.cuts.append((node, rest[0], f"{name}["))
            return True
        self.facts.cuts.append((node, None, f"{name}[None]" if is_one else name))
        return True

    def _fresh(self, whole: str) -> str:
        name, number = fresh_name(self._source, f"row_of_{whole.rpartition('.')[2]}"), 1
        while name in self.facts.params.values():
            number += 1
            name = fresh_name(self._source, f"row_of_{whole.rpartition('.')[2]}_{number}")
        return name

    # -- calls --------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> None:
        dotted, func = self._source.names.dotted(node.func), node.func
        given = [*node.args, *(each.value for each in node.keywords)]
        shown = f"{ast.unparse(func)}()"
        if any(each.arg in (None, "out", "inplace", "generator") for each in node.keywords):
            raise NotOfRows(f"{shown} is given what it may write to, or unpacks its arguments")
        name = dotted.rpartition(".")[2] or getattr(func, "attr", getattr(func, "id", ""))
        if dotted in FUNCTIONS:
            self._given(node.args, name)
            self._given_names(node.keywords, name)
        elif dotted.startswith("math."):
            self._numeric(given, shown)
        elif self._is_loss(func):
            self._given(given, "mse_loss" if self._is_loss(func) & ROWS_ALONE else "cross_entropy")
        elif isinstance(func, ast.Attribute) and not dotted:
            self._method(node, func)
        elif is_builtin(self._source, func, ("len", "abs")) and len(given) == 1:
            self._operand(given[0])
        elif is_builtin(self._source, func, ("float",)) and all(isinstance(each, ast.Constant) for each in given):
            pass
        elif isinstance(func, ast.Name) and not node.keywords:
            self._function(node, func)
        else:
            raise NotOfRows(f"{shown} may do more than to compute, or is not known to be done to many rows at once")

    def _given(self, args: Sequence[ast.expr], name: str) -> None:
        """Read the arguments of a function; only some may be given several tensors."""
        self.facts.grows |= name in GROWING
        if name == "where" and len(args) == 1:
            raise NotOfRows("where() of a condition alone gives another number of places for each row")
        if name in MAKERS:
            self._numeric(args, f"{name}()")
            return
        for at, each in enumerate(args):
            if at == 1 and name in ROWS_ALONE and not self.has_row(each):
                raise NotOfRows(f"{name}() of all rows at once, and of one target, makes torch warn")
            if name in ("stack", "cat"):
                if at == 0 and not isinstance(each, ast.List | ast.Tuple):
                    raise NotOfRows(f"what {name}() is given is not seen")
                self.value(each)
            elif at == 0 or name in OF_TENSORS:
                self._operand(each)
            else:
                self._numeric([each], f"{name}()")

    def _given_names(self, keywords: Sequence[ast.keyword], name: str) -> None:
        for each in keywords:
            if name in OF_TENSORS or each.arg == "input":
                self.value(each.value)
            else:
                self._numeric([each.value], f"{name}()")

    def _numeric(self, given: Sequence[ast.expr], shown: str) -> None:
        for each in given:
            self.value(each)
            if self.has_row(each):
                raise NotOfRows(f"{shown} would need the value of something that each row has another one of")

    def _method(self, node: ast.Call, func: ast.Attribute) -> None:
        if func.attr in self._project.functions or func.attr not in METHODS:
            raise NotOfRows(f"{ast.unparse(func)}() may do more than to compute, or is not known for many rows at once")
        self.value(func.value)
        whole = ast.unparse(func.value)
        if whole in self.facts.outer:
            if self._loop is None:
                raise NotOfRows(f"{whole} may be no tensor")
            self.facts.tensors[whole] = None
        self.facts.grows |= func.attr in GROWING
        if func.attr in OF_TENSORS:
            for each in node.args:
                self._operand(each)
        else:
            self._numeric(node.args, f"{func.attr}()")
        self._given_names(node.keywords, func.attr)

    def _is_loss(self, func: ast.expr) -> set[str]:
        """Return the classes of torch's modules that may be called, which only compute; none where others may be."""
        if not is_plain(func) or self._is_own(func) or "_hook(" in self._project.mentions:
            return set()
        made = [place.names.dotted(call.func) for place, call in Flow(self._project).origins(self._source, func)]
        return {name.rpartition(".")[2] for name in made} if {*made} <= LOSSES else set()

    def _function(self, node: ast.Call, func: ast.Name) -> None:
        """Read a function of the user's as if its body stood here."""
        dotted = self._source.names.dotted(func)
        known = self._project.functions.get(dotted.rpartition(".")[2] or func.id, [])
        shown = f"{func.id}()"
        if len(known) != 1 or self._depth >= _DEPTH:
            raise NotOfRows(f"{shown} may do more than to compute")
        place, function = known[0]
        is_here = place is self._source if not dotted else dotted.split(".")[-2] == place.path.stem
        stored = [each for each in ast.walk(place.tree) if isinstance(each, ast.Name) and each.id == function.name]
        is_bound_once = all(isinstance(each.ctx, ast.Load) for each in stored)
        if not is_here or not is_bound_once or function not in place.tree.body or func.id in self._bound:
            raise NotOfRows(f"{shown} is not seen to be one function")
        names = plain_arguments(function)
        if names is None or len(names) != len(node.args):
            raise NotOfRows(f"{shown} may do more than to compute")
        for each in node.args:
            self._operand(each)
        inner = RowBody(self._project, place, None, RowFacts())
        inner._tensors, inner._depth = {*names}, self._depth + 1
        *body, last = function.body[has_docstring(function) :] or [ast.Pass()]
        if not isinstance(last, ast.Return) or last.value is None:
            raise NotOfRows(f"{shown} does not end in what it returns")
        for statement in body:
            inner.binds(statement)
        inner.value(last.value)
        self.facts.grows |= inner.facts.grows
        for text, outer in inner.facts.outer.items():
            self.facts.outer.setdefault(f"{place.shown}:{text}", outer)
