"""What is kept of a step so that a statement can be carried out later: tensors that it reads, sizes, the turn's number.

Carried out later are only functions that compute, and that fail for no value: an error would come behind what the
script did meanwhile. Errors because of shapes and types come at once, since the first such step is not put off.
"""

import ast
import copy
from dataclasses import dataclass, field

from flatout.edits.cures.asked_forms import name_of_module
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import stores
from flatout.edits.reading.quiet_code import COMPUTING
from flatout.edits.reading.source_file import ModuleNames
from flatout.edits.reading.training_loops import is_without_gradients
from flatout.edits.text_changes import fresh_name

__all__ = ["COMPUTES", "KeptValues", "RefusedError", "is_of_builtins", "is_read"]

_NUMBERS, _TENSORS = {"item", "tolist"}, {"cpu", "numpy"}
_READS = _NUMBERS | _TENSORS
_ENDS = _NUMBERS | {"numpy"}  # what they return has no graph
_MOST_NUMBERS, _MOST_TENSORS = 64, 8  # that are kept
_WHOLE = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Tuple, ast.List, ast.Dict)
_NEVER_FAILS = ast.Add | ast.Sub | ast.Mult | ast.BitAnd | ast.BitOr | ast.BitXor
COMPUTES = {"abs", "bool", "float", "len", "list", "max", "min", "round", "sorted", "str", "sum", "tuple"}
_OF_MATH = {"math.isnan", "math.isfinite", "math.isinf", "math.tanh", "math.atan"}
_OF_TENSORS = (COMPUTING | {"long", "int", "float", "double", "flatten", "softmax", "sigmoid", "t", "numpy"}) - {
    "empty_like", "full_like", "get_device", "rand_like", "randn_like", "tensor", "ones_like", "zeros_like", "equal",
}  # fmt: skip
_OF_NUMPY = {
    f"numpy.{name}"
    for name in (
        "abs", "absolute", "all", "any", "argmax", "argmin", "exp", "expm1", "float32", "float64", "isfinite", "isnan",
        "log", "log10", "log1p", "log2", "max", "maximum", "mean", "median", "min", "minimum", "sign", "sqrt", "square",
        "std", "sum", "tanh", "var",
    )
}  # fmt: skip
_WARNS = ("errstate", "filterwarnings", "seterr", "simplefilter")
_LARGEST = 700  # that math.exp takes


class RefusedError(Exception):
    """Something in the statement may be another thing later."""


def is_read(node: ast.AST) -> bool:
    """Return whether a node is `value.item()` or the like."""
    plain = isinstance(node, ast.Call) and not node.args and not node.keywords
    return plain and isinstance(node.func, ast.Attribute) and node.func.attr in _READS  # type: ignore[attr-defined]


@dataclass
class KeptValues:
    """The statement as it is carried out later, and what is kept for that in the step.

    Attributes:
        bound: the name that the first statement binds to what it reads.
        names: of what was kept, in the statement.
        kept: the expressions of the step that give these.
        before: lines that compute what is kept, before it is asked about.
        asked: what has to be true so that it may be kept.
        like: what is the same in every step that is kept: shapes, types and sizes.
        at_once: what stands for parts of the statement where it is carried out in the step.
        builtins: functions of Python's that are used later.
        most: of how many steps it is kept.
    """

    place: EditPlace
    loop: ast.For | ast.While
    bound: str = ""
    names: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    like: list[str] = field(default_factory=list)
    at_once: dict[ast.expr, ast.expr] = field(default_factory=dict)
    builtins: set[str] = field(default_factory=set)
    most: int = _MOST_NUMBERS
    is_reduced: bool = False  # what is read just now ends as a number, which has no graph

    @property
    def torch(self) -> str:
        """What the file calls torch."""
        return name_of_module(self.place, "torch")

    def statement(self, changed: ast.stmt, value: ast.expr, *, together: bool) -> str:
        """Return the text of a statement that adds `value`; `together`: nothing else stands between the first and it.

        Raises:
            RefusedError: a part of it may be another thing later.
        """
        changed, before = copy.deepcopy(changed), len(self.kept)
        if isinstance(changed, ast.AugAssign) and not isinstance(changed.op, _NEVER_FAILS):
            raise RefusedError(f"{ast.unparse(changed)} may fail")
        if isinstance(changed, ast.AugAssign | ast.Assign):
            changed.value = self._expression(value)
        else:
            changed.value.args = [self._expression(value)]  # type: ignore[attr-defined]
        if len(self.kept) > before and not together:
            raise RefusedError(f"{ast.unparse(value)} may be another value where the first line stands")
        return ast.unparse(changed)

    def _is_later(self, node: ast.AST) -> bool:
        return is_read(node) or (isinstance(node, ast.Name) and node.id == self.bound)

    def _expression(self, node: ast.expr) -> ast.expr:
        inner = [each for each in ast.walk(node) if self._is_later(each)]
        if not inner:
            return self._other(node)
        if isinstance(node, ast.Name):
            return node
        if is_read(node) and all(_is_chain(node, each) for each in inner):
            return self._read(node)
        if isinstance(node, ast.Call):
            outer, self.is_reduced = self.is_reduced, self.is_reduced or _is_number(node)
            called = self._call(node)
            self.is_reduced = outer
            return called
        if isinstance(node, _WHOLE):
            if isinstance(node, ast.BinOp) and not _may_be_later(node):
                raise RefusedError(f"{ast.unparse(node)} may fail, for some value")
            made = copy.copy(node)
            for name, part in ast.iter_fields(node):
                if isinstance(part, ast.expr):
                    setattr(made, name, self._expression(part))
                elif isinstance(part, list):
                    parts = [self._expression(each) if isinstance(each, ast.expr) else each for each in part]
                    setattr(made, name, parts)
            return made
        raise RefusedError(f"{ast.unparse(node)} is more than a value that is read and arithmetic")

    def _call(self, node: ast.Call) -> ast.expr:
        """Return a call of what is read, or with it: of a function of Python's or numpy's, or a method."""
        made, names = copy.copy(node), self.place.source.names
        if isinstance(node.func, ast.Attribute) and any(map(self._is_later, ast.walk(node.func.value))):
            if node.func.attr not in _READS | {"detach"} | _OF_TENSORS:
                raise RefusedError(f"{node.func.attr}() may do more than compute")
            made.func = copy.copy(node.func)
            made.func.value = self._expression(node.func.value)
        elif not self._is_pure(names, node):
            raise RefusedError(f"{ast.unparse(node.func)}() may do more than compute")
        if any(isinstance(each, ast.Starred) for each in node.args) or any(not each.arg for each in node.keywords):
            raise RefusedError(f"{ast.unparse(node)} is given more than is seen")
        made.args = [self._expression(each) for each in node.args]
        made.keywords = [ast.keyword(each.arg, self._expression(each.value)) for each in node.keywords]
        return made

    def _is_pure(self, names: ModuleNames, call: ast.Call) -> bool:
        """Return whether a call computes, and fails for no value of what it is given."""
        dotted = names.dotted(call.func)
        if any(each.arg in ("out", "key") for each in call.keywords):
            return False
        if dotted == "math.exp":
            return len(call.args) == 1 and _is_bounded(names, call.args[0])
        if dotted:
            package, _, name = dotted.rpartition(".")
            if dotted in _OF_NUMPY and any(each in self.place.project.mentions for each in _WARNS):
                return False  # a warning may be an error
            return dotted in _OF_MATH | _OF_NUMPY or (package == "torch" and name in _OF_TENSORS)
        if not is_of_builtins(names, call.func):
            return False
        assert isinstance(call.func, ast.Name)
        self.builtins.add(call.func.id)
        digits = call.args[1] if len(call.args) == 2 else None
        return call.func.id != "round" or (isinstance(digits, ast.Constant) and type(digits.value) is int)

    def _read(self, node: ast.expr) -> ast.expr:
        """Return what is read later of a tensor that is kept."""
        base, methods = node, list[str]()
        while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute):
            if base.args or base.keywords or base.func.attr not in {*_READS, "detach"}:
                break
            methods.append(base.func.attr)
            base = base.func.value
        cut = self.is_reduced or not {*_ENDS, "detach"}.isdisjoint(methods)
        if not cut and not is_without_gradients(self.place.source, self.place.statement):
            raise RefusedError(f"{ast.unparse(node)} may be kept with its graph")
        now = self._now(base)
        if {*methods} & _TENSORS:
            self.most = _MOST_TENSORS
            if not self.is_reduced and not {*methods} & _NUMBERS:  # on the CPU, it is no copy
                self.asked.append(f'{now}.device.type != "cpu"')
        later: ast.expr = self._keep(f"{now}.detach().clone()")
        for method in reversed([each for each in methods if each != "detach"]):
            later = ast.Call(ast.Attribute(later, method, ast.Load()), [], [])
        return later

    def _now(self, base: ast.expr) -> str:
        """Return the name of a tensor of the step, about which it is asked."""
        if isinstance(base, ast.Name):
            now = base.id
        else:
            number = len(self.before) + 1
            now = fresh_name(self.place.source, "read_now" if number == 1 else f"read_now_{number}")
            self.before.append(f"{now} = {ast.unparse(base)}")
            self.at_once[base] = ast.Name(now, ast.Load())
        self.asked.insert(0, f"type({now}) is {self.torch}.Tensor")
        self.like.extend([f"{now}.shape", f"{now}.dtype", f"{now}.device"])
        return now

    def _other(self, node: ast.expr) -> ast.expr:
        """Return what is not read from the device: a number of the step, or what the loop goes over."""
        if isinstance(node, ast.Constant):
            return node
        if _is_size(node):
            self.like.append(ast.unparse(node))
            return self._keep(ast.unparse(node))
        if self._is_counted(node):
            return self._keep(ast.unparse(node))
        targets = ast.walk(self.loop.target) if isinstance(self.loop, ast.For) else ()
        if isinstance(node, ast.Name) and node.id in {each.id for each in targets if isinstance(each, ast.Name)}:
            return self._keep(f"{self._now(node)}.detach().clone()")
        raise RefusedError(f"{ast.unparse(node)} may be another one later")

    def _is_counted(self, node: ast.expr) -> bool:
        """Return whether an expression is the number of the turn."""
        if not isinstance(node, ast.Name) or not isinstance(self.loop, ast.For):
            return False
        target, over = self.loop.target, self.loop.iter
        function = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
        if function == "enumerate" and isinstance(target, ast.Tuple):
            target = target.elts[0]
        elif function != "range":
            return False
        return isinstance(target, ast.Name) and target.id == node.id and node.id not in stores(self.loop.body)

    def _keep(self, text: str) -> ast.Name:
        wanted = "read" if not self.names else f"read_{len(self.names) + 1}"
        self.names.append(fresh_name(self.place.source, wanted))
        self.kept.append(text)
        return ast.Name(self.names[-1], ast.Load())


def is_of_builtins(names: ModuleNames, node: ast.expr) -> bool:
    """Return whether a name is that of a function of Python's that computes, and keeps nothing."""
    return isinstance(node, ast.Name) and node.id in COMPUTES and node.id not in {*names.bound, *names.imports}


def _may_be_later(node: ast.BinOp) -> bool:
    """Return whether arithmetic fails for no number: nothing is divided by what may be zero."""
    if isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
        divisor = node.right
        return _is_size(divisor) or (isinstance(divisor, ast.Constant) and divisor.value not in (0, 0.0))
    return isinstance(node.op, _NEVER_FAILS | ast.MatMult)


def _is_bounded(names: ModuleNames, node: ast.expr) -> bool:
    """Return whether an expression is no number too large for `math.exp`: `min(loss.item(), 20)`."""
    if not isinstance(node, ast.Call) or node.keywords or not isinstance(node.func, ast.Name):
        return False
    plain = node.func.id == "min" and is_of_builtins(names, node.func)
    return plain and any(
        isinstance(each, ast.Constant) and isinstance(each.value, int | float) and each.value <= _LARGEST
        for each in node.args
    )


def _is_chain(node: ast.expr, part: ast.AST) -> bool:
    """Return whether `part` is `node`, or what its methods are called on, one after another."""
    while node is not part:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr not in {*_READS, "detach"}:
            return False
        node = node.func.value
    return True


def _is_number(node: ast.Call) -> bool:
    """Return whether a call returns something without a graph, whatever it is called on."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _ENDS or (isinstance(node.func, ast.Name) and name in ("float", "int"))


def _is_size(node: ast.expr) -> bool:
    """Return whether an expression is `len(x)`, `x.size(0)`, `x.shape[0]` or `x.numel()` of a name."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        node = node.value
        return isinstance(node, ast.Attribute) and node.attr == "shape" and isinstance(node.value, ast.Name)
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Name)
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in ("size", "numel", "dim")
    return is_method and all(isinstance(each, ast.Constant) for each in node.args)
