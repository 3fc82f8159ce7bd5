"""A `forward` whose outputs do not depend on padding, followed through the kinds of its values.

What is known is short: tables, layers that compute each position by itself, attention with a mask of padding, sums and
maxima of what a mask leaves. Anything else, a length that is read, a mean over all positions, a random number, a value
that is kept, is not proven, and so is an output with a position for each word.
"""

import ast
from dataclasses import dataclass, field
from enum import Enum, auto

from flatout.edits.cures.forward.padded_layers import BY_POSITION, OF_ROWS, is_attention, is_by_position, num_dims
from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.called_layers import makers
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.plain_values import Unproven
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["PaddedRows", "Unproven"]


class Pads(Enum):
    """What a value has in the positions of padding."""

    COUNTS = auto()  # zero there
    COUNT_COLUMN = auto()  # the same, with a third dimension
    PADDING = auto()  # true there
    PADDING_COLUMN = auto()
    PLACES = auto()  # anything, the same for all rows
    POSITIONS = auto()  # anything
    ZERO = auto()  # zero, of what else is anything
    LEAST = auto()  # less than all else
    ROWS = auto()  # it has no positions, and depends on none of these


_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div
_OTHER_SIDE: dict[Pads | None, Pads] = {
    Pads.PADDING: Pads.COUNTS,
    Pads.COUNTS: Pads.PADDING,
    Pads.PADDING_COLUMN: Pads.COUNT_COLUMN,
    Pads.COUNT_COLUMN: Pads.PADDING_COLUMN,
}
_COLUMNS: dict[Pads | None, Pads] = {
    Pads.PADDING: Pads.PADDING_COLUMN,
    Pads.COUNTS: Pads.COUNT_COLUMN,
}
_BY_ELEMENT = frozenset({"abs", "exp", "gelu", "relu", "sigmoid", "silu", "sqrt", "square", "tanh"})
_OF_ROW = frozenset({"clamp", "clamp_min", "float", "squeeze", "unsqueeze"}) | _BY_ELEMENT
_CASTS = frozenset({"bool", "double", "float", "half", "int", "long", "type_as", "to"})
_LOSSES = frozenset({"binary_cross_entropy_with_logits", "cross_entropy", "mse_loss", "log_softmax", "softmax"})
_LEAST = -1e8


@dataclass
class PaddedRows:
    """The proof for one `forward`.

    Attributes:
        counts: expressions of which one is true at each position that counts.
        words: the arguments that have a position for each word.
        flags: those that have to be tensors of truth values.
    """

    project: Project
    source: SourceFile
    forward: Function
    counts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        given = (*self.forward.args.posonlyargs, *self.forward.args.args, *self.forward.args.kwonlyargs)
        self._self, *names = [each.arg for each in given]
        self._arguments, self._as_rows = {*names}, set[str]()
        if not self._ends(self.forward.body, {}):
            raise Unproven("forward() may return nothing")
        both = min(self._as_rows & {*self.words}, default="")
        if both:
            raise Unproven(f"{both} has positions, and is used as if it had none")

    @property
    def root(self) -> str:
        """What `forward` calls its object."""
        return self._self

    # -- statements ---------------------------------------------------------------------------------------------

    def _ends(self, body: list[ast.stmt], env: dict[str, Pads]) -> bool:
        """Follow statements; return whether they return for certain."""
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                if len(statement.targets) != 1:
                    raise Unproven(f"{ast.unparse(statement)} is not followed")
                self._bind(statement.targets[0].id, statement.value, env)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                parts = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
                for each in parts:
                    self._rows(each, env)
                return True
            elif isinstance(statement, ast.If) and self._asks_for_none(statement.test):
                there, other = dict(env), dict(env)
                ends = self._ends(statement.body, there), self._ends(statement.orelse, other)
                if all(ends):
                    return True
                kept = [each for each, end in zip((there, other), ends, strict=True) if not end]
                env.clear()
                env.update((n, k) for n, k in kept[0].items() if all(each.get(n) is k for each in kept))
            else:
                raise Unproven(f"`{ast.unparse(statement).partition(chr(10))[0]}` is not followed")
        return False

    def _bind(self, name: str, value: ast.expr, env: dict[str, Pads]) -> None:
        if name in self._arguments or name == self._self:
            raise Unproven(f"{name} is an argument, and bound anew")
        env[name] = self.kind(value, env)

    def _asks_for_none(self, test: ast.expr) -> bool:
        is_asked = isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and len(test.ops) == 1
        return is_asked and ast.unparse(test).endswith((" is None", " is not None"))

    # -- expressions --------------------------------------------------------------------------------------------

    def kind(self, node: ast.expr, env: dict[str, Pads]) -> Pads:
        """Return what an expression is.

        Raises:
            Unproven: that is not known.
        """
        found = self._kind(node, env)
        if found is None:
            raise Unproven(f"`{ast.unparse(node)}` may depend on the padding")
        return found

    def _rows(self, node: ast.expr, env: dict[str, Pads]) -> Pads:
        if self.kind(node, env) is not Pads.ROWS:
            raise Unproven(f"`{ast.unparse(node)}` has a position for each word")
        return Pads.ROWS

    def _kind(self, node: ast.expr, env: dict[str, Pads]) -> Pads | None:
        if isinstance(node, ast.Constant):
            return Pads.ROWS if isinstance(node.value, int | float) or node.value is None else None
        if isinstance(node, ast.Name):
            if node.id in env or node.id not in self._arguments:
                return env.get(node.id)
            self._as_rows.add(node.id)
            return Pads.ROWS
        mask = self._mask(node, env)
        if mask is not None:
            return mask
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            found = self.kind(node.operand, env)
            return found if found in (Pads.ROWS, Pads.POSITIONS, Pads.ZERO) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
            return self._sum(node, env)
        if isinstance(node, ast.Subscript):
            return self._part(node, env)
        if isinstance(node, ast.Attribute) and node.attr == "values":
            return self._greatest(node.value, env)
        return self._call(node, env) if isinstance(node, ast.Call) else None

    def _sum(self, node: ast.BinOp, env: dict[str, Pads]) -> Pads | None:
        pair = (self._of_operand(node.left, env), self._of_operand(node.right, env))
        if pair == (Pads.ROWS, Pads.ROWS):
            return Pads.ROWS
        if isinstance(node.op, ast.Mult) and Pads.COUNT_COLUMN in pair and {*pair} & {Pads.POSITIONS, Pads.ZERO}:
            return Pads.ZERO
        if isinstance(node.op, ast.Add) and {*pair} == {Pads.PLACES, Pads.POSITIONS}:
            return Pads.POSITIONS
        number = isinstance(node.left, ast.Constant) or isinstance(node.right, ast.Constant)
        if number and not {*pair} <= {Pads.ROWS, Pads.POSITIONS, Pads.ZERO}:
            return None
        return Pads.POSITIONS if number or {*pair} <= {Pads.POSITIONS, Pads.ZERO} else None

    def _of_operand(self, node: ast.expr, env: dict[str, Pads]) -> Pads:
        """Return what an operand is; an argument with positions stands for what counts."""
        found = self._counted(node) if isinstance(node, ast.Name) and node.id in self.words else None
        return found or self.kind(node, env)

    # -- masks --------------------------------------------------------------------------------------------------

    def _mask(self, node: ast.expr, env: dict[str, Pads]) -> Pads | None:
        """Return whether an expression is a mask: arguments compared with numbers, in other types and dimensions."""
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return self._compared(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            inner = self._mask(node.operand, env) or self._padding(node.operand, env)
            return _OTHER_SIDE.get(inner) if inner else None
        if isinstance(node, ast.Name):
            found = env.get(node.id)
            return found if found in _OTHER_SIDE else None
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice).strip("()") in (":, :, None", "..., None"):
            return _column(self._mask(node.value, env) or self._counted(node.value))
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
            return None
        given = [ast.unparse(each) for each in node.args]
        inner_kind = self._mask(node.func.value, env) or self._counted(node.func.value)
        if node.func.attr == "unsqueeze" and given in (["2"], ["-1"]):
            return _column(inner_kind)
        is_cast = node.func.attr in _CASTS and all(map(is_plain, node.args))
        return inner_kind if is_cast and inner_kind in (Pads.COUNTS, Pads.COUNT_COLUMN) else None

    def _compared(self, node: ast.Compare) -> Pads | None:
        name, value = node.left, node.comparators[0]
        number = value.operand if isinstance(value, ast.UnaryOp) else value
        plain = isinstance(number, ast.Constant) and type(number.value) is int
        if not isinstance(name, ast.Name) or name.id not in self._arguments or not plain:
            return None
        self._has_words(name.id)
        text = f"{name.id} != {ast.unparse(value)}"
        self.counts += [text] if text not in self.counts else []
        return Pads.COUNTS if isinstance(node.ops[0], ast.NotEq) else Pads.PADDING

    def _padding(self, node: ast.expr, env: dict[str, Pads]) -> Pads | None:
        """Return that an argument is a mask of padding."""
        if isinstance(node, ast.Name) and node.id in self._arguments and node.id not in env:
            self._has_words(node.id)
            self.flags += [node.id] if node.id not in self.flags else []
            self.counts += [f"~{node.id}"] if f"~{node.id}" not in self.counts else []
            return Pads.PADDING
        return None

    def _counted(self, node: ast.expr) -> Pads | None:
        """Return that an argument is a mask of what counts: numbers that are zero for padding."""
        if isinstance(node, ast.Name) and node.id in self._arguments:
            self._has_words(node.id)
            text = f"{node.id} != 0"
            self.counts += [text] if text not in self.counts else []
            return Pads.COUNTS
        return None

    def _has_words(self, name: str) -> None:
        self.words += [name] if name not in self.words else []

    # -- calls --------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, env: dict[str, Pads]) -> Pads | None:
        dotted = self.source.names.dotted(node.func)
        if dotted:
            return self._function(node, dotted, env)
        if not isinstance(node.func, ast.Attribute):
            return None
        if ast.unparse(node.func.value) == self._self:
            return self._layer(node, env)
        return self._method(node, node.func, env)

    def _function(self, node: ast.Call, dotted: str, env: dict[str, Pads]) -> Pads | None:
        package, _, name = dotted.rpartition(".")
        if package not in ("torch", "torch.nn.functional") or not node.args:
            return None
        if name in _BY_ELEMENT and len(node.args) == 1 and not node.keywords:
            found = self.kind(node.args[0], env)
            return found if found is Pads.ROWS else Pads.POSITIONS if found in (Pads.POSITIONS, Pads.ZERO) else None
        if name == "cat" and isinstance(node.args[0], ast.List | ast.Tuple):
            parts = [self._rows(each, env) for each in node.args[0].elts]
            return Pads.ROWS if parts and all(isinstance(each.value, ast.Constant) for each in node.keywords) else None
        if name in _LOSSES:
            given = [*node.args, *(each.value for each in node.keywords if each.arg != "reduction")]
            plain = all(each.arg and not isinstance(each.value, ast.Call) for each in node.keywords)
            return Pads.ROWS if plain and all(self.kind(each, env) is Pads.ROWS for each in given) else None
        return None

    def _method(self, node: ast.Call, function: ast.Attribute, env: dict[str, Pads]) -> Pads | None:
        given = [*node.args, *(each.value for each in node.keywords)]
        texts = [ast.unparse(each) for each in given]
        if function.attr == "masked_fill" and len(given) == 2 and not node.keywords:
            padding = self._mask(given[0], env) or self._padding(given[0], env)
            value = self.kind(function.value, env)
            is_filled = padding is Pads.PADDING_COLUMN and value in (Pads.POSITIONS, Pads.ZERO) and _is_least(given[1])
            return Pads.LEAST if is_filled else None
        value = self._of_operand(function.value, env)
        if function.attr == "sum" and texts == ["1"] and {each.arg for each in node.keywords} <= {"dim", "axis"}:
            return Pads.ROWS if value in (Pads.ZERO, Pads.COUNTS, Pads.COUNT_COLUMN) else None
        if function.attr == "amax":
            return Pads.ROWS if value is Pads.LEAST and texts == ["1"] else None
        if value is Pads.ROWS and function.attr in _OF_ROW:
            return Pads.ROWS if all(isinstance(each, ast.Constant | ast.UnaryOp) for each in given) else None
        return None

    def _greatest(self, node: ast.expr, env: dict[str, Pads]) -> Pads | None:
        """Return what the values of `x.max(1)` are."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "max":
            return None
        given = [*node.args, *(each.value for each in node.keywords if each.arg == "dim")]
        plain = [ast.unparse(each) for each in given] == ["1"] and len(node.args) + len(node.keywords) == 1
        return Pads.ROWS if plain and self.kind(node.func.value, env) is Pads.LEAST else None

    def _part(self, node: ast.Subscript, env: dict[str, Pads]) -> Pads | None:
        """Return what `h[:, 0]` is: the first position is there in any case."""
        if ast.unparse(node.slice).strip("()") in (":, 0", ":, 0, :"):
            return Pads.ROWS if self.kind(node.value, env) in (Pads.POSITIONS, Pads.ZERO) else None
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        *before, last = [each if isinstance(each, ast.Slice) else ast.Slice(step=each) for each in parts]
        if any(each.lower or each.upper or each.step for each in before) or last.lower or last.step or not last.upper:
            return None
        made = makers(self.project, self.source, node.value)
        sizes = [num_dims(place, call) for place, call in made]
        is_place = bool(sizes) and {*sizes} == {len(before) + 2} and self._is_length(last.upper)
        return Pads.PLACES if is_place else None

    def _is_length(self, node: ast.expr) -> bool:
        """Return whether an expression is the number of positions, `words.size(1)`."""
        of = [each for each in self._arguments if ast.unparse(node) in (f"{each}.size(1)", f"{each}.shape[1]")]
        for each in of:
            self._has_words(each)
        return bool(of)

    # -- layers -------------------------------------------------------------------------------------------------

    def _layer(self, node: ast.Call, env: dict[str, Pads]) -> Pads | None:
        made = makers(self.project, self.source, node.func)
        if len(made) != 1 or not node.args:
            return None
        (place, call), first = made[0], node.args[0]
        dotted = place.names.dotted(call.func)
        if dotted == "torch.nn.Embedding":
            known = {each.arg for each in call.keywords} <= {"padding_idx", "device", "dtype"} and len(call.args) < 4
            return self._looked_up(first) if known and len(node.args) == 1 and not node.keywords else None
        if is_attention(self.project, place, call):
            masks = [each for each in node.keywords if each.arg == "src_key_padding_mask"]
            plain = len(node.args) == 1 and len(masks) == len(node.keywords) == 1
            if not plain or self.kind(first, env) not in (Pads.POSITIONS, Pads.ZERO):
                return None
            padding = self._mask(masks[0].value, env) or self._padding(masks[0].value, env)
            return Pads.POSITIONS if padding is Pads.PADDING else None
        if len(node.args) != 1 or node.keywords:
            return None
        found = self.kind(first, env)
        if found is Pads.ROWS:
            return found if is_by_position(place, call, OF_ROWS) else None
        is_kept = found in (Pads.POSITIONS, Pads.ZERO) and is_by_position(place, call, BY_POSITION)
        return Pads.POSITIONS if is_kept else None

    def _looked_up(self, node: ast.expr) -> Pads | None:
        """Return what a table gives: for words, or for the numbers of their positions."""
        if isinstance(node, ast.Name) and node.id in self._arguments:
            self._has_words(node.id)
            return Pads.POSITIONS
        if not isinstance(node, ast.Call) or self.source.names.dotted(node.func) != "torch.arange":
            return None
        if any(each.arg != "device" or not is_plain(each.value) for each in node.keywords):
            return None
        return Pads.PLACES if len(node.args) == 1 and self._is_length(node.args[0]) else None


def _column(mask: Pads | None) -> Pads | None:
    """Return what a mask is with a third dimension."""
    return _COLUMNS.get(mask)


def _is_least(node: ast.expr) -> bool:
    """Return whether a number is less than any that a layer gives: -1e9, or minus infinity."""
    text = ast.unparse(node).replace('"', "'")
    if text in ("float('-inf')", "-float('inf')", "-torch.inf", "-math.inf"):
        return True
    number = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else None
    return isinstance(number, ast.Constant) and isinstance(number.value, int | float) and -number.value <= _LEAST
