"""Arithmetic on one tensor of a loop, as the same arithmetic on lists of them: `q.mul_(d)` as `torch._foreach_mul_`.

On the CPU torch does such operations tensor by tensor, by the kernels of the single ones, so that the bits are equal.
"""

import ast
import copy
import re
from collections.abc import Callable

__all__ = ["ForeachTerms", "NotElementwise"]

_BINARY: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_EITHER_SIDE = ("add", "mul")
_PLAIN = ("data", "grad")
_SAME = ("detach",)
_ROOTS = ("sqrt", "abs", "neg", "sign", "exp", "log")


class NotElementwise(Exception):
    """An expression is none that lists of tensors can be given to."""


class ForeachTerms:
    """The tensors of a loop that are collected in lists, and code that does to the lists what was done to each."""

    def __init__(self, of_turn: set[str], text: Callable[[ast.expr], str], fresh: Callable[[str], str]) -> None:
        """Take the names that each turn binds, how nodes are written, and what gives free names."""
        self._of_turn, self._text, self._fresh = of_turn, text, fresh
        self.lists: dict[str, str] = {}  # by the tensor as it is written
        self.lines: list[str] = []
        self.outer: list[ast.expr] = []  # what is no tensor of the loop

    def act(self, statement: ast.stmt) -> None:
        """Add the lines that do to the lists what a statement does to one tensor in place.

        Raises:
            NotElementwise: it does something else.
        """
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._chain(statement.value)
        elif isinstance(statement, ast.AugAssign) and type(statement.op) in _BINARY:
            if not isinstance(statement.target, ast.Name | ast.Attribute):
                raise NotElementwise  # state["step"] += 1 may be of a number
            target = self._leaf(statement.target)
            if isinstance(statement.target, ast.Attribute):
                self._leaf(statement.target.value)  # it is set again: p.grad += x
            value = self._term(statement.value)
            self.lines.append(f"torch._foreach_{_BINARY[type(statement.op)]}_({target}, {value})")
        else:
            raise NotElementwise

    def turn_by_turn(self, statements: list[ast.stmt]) -> list[str]:
        """Return the lines that do what the statements did, for the collected tensors of one turn after the other."""
        names = {text: self._fresh(f"one_{name.removeprefix('all_')}") for text, name in self.lists.items()}
        taken, lists = ", ".join(names.values()), ", ".join(self.lists.values())
        head = f"for {taken} in zip({lists}):" if len(names) > 1 else f"for {taken} in {lists}:"
        made = (_Renamed(names, self._text).visit(copy.deepcopy(each)) for each in statements)
        return [
            head,
            *(f"    {line}" for each in made for line in ast.unparse(ast.fix_missing_locations(each)).split("\n")),
        ]

    # -- changes in place -----------------------------------------------------------------------------------------

    def _chain(self, call: ast.Call) -> str:
        """Add the lines of `tensor.mul_(a).add_(b)`, and return the list of its tensors."""
        if not isinstance(call.func, ast.Attribute) or not call.func.attr.endswith("_"):
            raise NotElementwise
        inner, name = call.func.value, call.func.attr.removesuffix("_")
        of = self._chain(inner) if isinstance(inner, ast.Call) and not self._is_leaf(inner) else self._leaf(inner)
        for operation, given in self._operations(name, call):
            self.lines.append(f"torch._foreach_{operation}_({', '.join([of, *given])})")
        return of

    def _operations(self, name: str, call: ast.Call) -> list[tuple[str, list[str]]]:
        """Return the operations on lists that one in place on a tensor is, each with its arguments."""
        named = {each.arg or "**": each.value for each in call.keywords}
        args = list(call.args)
        if name in ("add", "sub") and len(args) == 1 and named.keys() <= {"alpha"}:
            if named and not self._has_tensors(args[0]):
                raise NotElementwise
            return [(name, [self._term(args[0]), *self._scalars(named)])]
        if name in ("mul", "div", "copy") and len(args) == 1 and not named:
            if name == "copy" and not self._has_tensors(args[0]):
                raise NotElementwise
            return [(name, [self._term(args[0])])]
        if name in ("addcmul", "addcdiv") and len(args) == 2 and named.keys() <= {"value"}:
            return [(name, [self._listed(args[0]), self._listed(args[1]), *self._scalars(named)])]
        if name == "lerp" and len(args) + len(named) == 2 and named.keys() <= {"weight"}:
            weight = named["weight"] if named else args[1]
            return [(name, [self._listed(args[0]), self._scalar(weight)])]
        if name == "zero" and not args and not named:
            return [(name, [])]
        if name == "clamp":
            bounds = dict(zip(("min", "max"), args, strict=False)) | named
            bounds = {side: value for side, value in bounds.items() if ast.unparse(value) != "None"}
            if bounds and bounds.keys() <= {"min", "max"}:
                return [(f"clamp_{side}", [self._scalar(bounds[side])]) for side in ("min", "max") if side in bounds]
        raise NotElementwise

    def _scalars(self, named: dict[str, ast.expr]) -> list[str]:
        return [f"{name}={self._scalar(value)}" for name, value in named.items()]

    # -- expressions ----------------------------------------------------------------------------------------------

    def _term(self, node: ast.expr) -> str:
        """Return code for an expression: a list where it has to do with tensors of the loop."""
        if not self._has_tensors(node):
            self.outer.append(node)
            return self._text(node)
        if self._is_leaf(node):
            return self._leaf(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            operation, left, right = _BINARY[type(node.op)], node.left, node.right
            if not self._has_tensors(left):
                if operation not in _EITHER_SIDE:
                    raise NotElementwise
                left, right = right, left
            return f"torch._foreach_{operation}({self._term(left)}, {self._term(right)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return f"torch._foreach_neg({self._term(node.operand)})"
        alone = isinstance(node, ast.Call) and not node.args and not node.keywords
        if alone and isinstance(node.func, ast.Attribute) and node.func.attr in _ROOTS:  # type: ignore[attr-defined]
            return f"torch._foreach_{node.func.attr}({self._term(node.func.value)})"  # type: ignore[attr-defined]
        raise NotElementwise

    def _listed(self, node: ast.expr) -> str:
        if not self._has_tensors(node):
            raise NotElementwise
        return self._term(node)

    def _scalar(self, node: ast.expr) -> str:
        if self._has_tensors(node):
            raise NotElementwise
        self.outer.append(node)
        return self._text(node)

    def _has_tensors(self, node: ast.expr) -> bool:
        return any(isinstance(each, ast.Name) and each.id in self._of_turn for each in ast.walk(node))

    def _is_leaf(self, node: ast.expr) -> bool:
        """Return whether an expression names a tensor of the turn: `p`, `p.grad`, `state["mean"]`, `p.detach()`."""
        while (inner := _inner(node)) is not None:
            node = inner
        return isinstance(node, ast.Name) and node.id in self._of_turn

    def _leaf(self, node: ast.expr) -> str:
        """Return the list of a tensor, which is collected from now on."""
        if not self._is_leaf(node):
            raise NotElementwise
        text = self._text(node)
        if text not in self.lists:
            name = self._fresh("all_" + re.sub(r"\W+", "_", text).strip("_"))
            self.lists[text] = name if name not in self.lists.values() else f"{name}_"
        return self.lists[text]


class _Renamed(ast.NodeTransformer):
    """Puts variables in the place of expressions that are written in some way."""

    def __init__(self, names: dict[str, str], text: Callable[[ast.expr], str]) -> None:
        self._names, self._text = names, text

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the variable of a tensor; what is set again is set where it was."""
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
            owner = self._names[self._text(node.target.value)]
            target = ast.Attribute(ast.Name(owner, ast.Load()), node.target.attr, ast.Store())
            return ast.AugAssign(target, node.op, self.visit(node.value))  # type: ignore[arg-type]
        if isinstance(node, ast.expr) and self._text(node) in self._names:
            return ast.Name(self._names[self._text(node)], getattr(node, "ctx", ast.Load()))
        return self.generic_visit(node)


def _inner(node: ast.expr) -> ast.expr | None:
    """Return what a part is of, `p` of `p.grad` or `p.detach()`; None of what is no part."""
    if isinstance(node, ast.Call):
        called = node.func
        return called.value if isinstance(called, ast.Attribute) and called.attr in _SAME else None
    if isinstance(node, ast.Attribute) and node.attr in _PLAIN:
        return node.value
    return node.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else None
