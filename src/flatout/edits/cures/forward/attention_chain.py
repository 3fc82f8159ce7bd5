"""Attention as it is written out: product, scale, mask, softmax, dropout and product, over any number of statements."""

import ast
from dataclasses import dataclass, field

from flatout.edits.cures.forward.matrix_products import Product, product_of
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values, is_made_by
from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.in_place import is_in_place

__all__ = ["Attention", "Layer", "NoAttention", "attention_in"]


class NoAttention(Exception):
    """The line is no attention that is known; the message says why."""


@dataclass(frozen=True)
class Layer:
    """One thing that is done to the scores or the weights.

    `kind`: "cast", "dropout", "softmax", "scale", "divide", "add", "fill" or "keep"; `given`: what it is given besides.
    """

    kind: str
    node: ast.expr
    given: tuple[ast.expr, ...] = ()
    unless_none: ast.expr | None = None  # it is done where this is not None


@dataclass
class Attention:
    """The two products, what is done between them (the last thing first), and the statements that it takes."""

    out: Product
    scores: Product
    layers: list[Layer]
    statements: list[ast.stmt] = field(default_factory=list)  # besides the one with the last product


def attention_in(place: EditPlace) -> Attention:
    """Return the attention whose last product the finding's statement makes.

    Raises:
        NoAttention: there is none, or something else stands between its products.
    """
    reason = ""
    for node in ast.walk(place.statement):
        out = product_of(place.source, node) if isinstance(node, ast.expr) else None
        if out is None:
            continue
        try:
            return _Reader(place).read(out)
        except NoAttention as error:
            reason = reason or str(error)
    raise NoAttention(reason or "a product of softmax(q @ k) with another tensor is not found on this line")


class _Reader:
    """Follows the scores backwards through the statements of a block."""

    def __init__(self, place: EditPlace) -> None:
        self._place = place
        self._block = block_of(place.source, place.statement)
        self._at = self._block.index(place.statement)
        self._taken: list[ast.stmt] = []

    def read(self, out: Product) -> Attention:
        """Return the attention that ends in the product `out`."""
        layers: list[Layer] = []
        node: ast.expr = out.left
        while True:
            named = node
            node, around = self._resolved(node)
            scores = product_of(self._place.source, node) if around is None else None
            if scores is not None and any(each.kind == "softmax" for each in layers):
                return Attention(out, scores, layers, self._taken)
            layer, node = self._layer(node)
            if around is not None and ast.dump(node) != ast.dump(named):
                raise NoAttention("more than one thing is done under a condition between the products")
            layers.append(Layer(layer.kind, layer.node, layer.given, around))

    def _resolved(self, node: ast.expr) -> tuple[ast.expr, ast.expr | None]:
        """Return what a name was bound to, and what is asked not to be None around that."""
        while isinstance(node, ast.Name):
            node, around = _bound_by(self._binding(node.id), node.id)
            if around is not None:
                return node, around
        return node, None

    def _binding(self, name: str) -> ast.stmt:
        for at in range(self._at - 1, -1, -1):
            statement = self._block[at]
            if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(statement)):
                self._at = at
                self._taken.append(statement)
                return statement
        raise NoAttention(f"{name} is not made in the block of this line")

    def _layer(self, node: ast.expr) -> tuple[Layer, ast.expr]:
        """Return what is done last, and what it is done to."""
        found = _arithmetic(node) or (self._call(node) if isinstance(node, ast.Call) else None)
        if found is None:
            raise NoAttention(f"{ast.unparse(node)} is neither a scale, a mask, a softmax nor a dropout")
        return found

    def _call(self, node: ast.Call) -> tuple[Layer, ast.expr] | None:
        dotted, method = self._place.source.names.dotted(node.func), ""
        args, inner = list(node.args), None
        if isinstance(node.func, ast.Attribute) and not dotted:
            method, inner = node.func.attr, node.func.value
            if isinstance(inner, ast.Name) and inner.id == "self":  # self.dropout(x) is a module
                method, inner = "", None
        name = (dotted.rpartition(".")[2] if dotted.startswith("torch.") else method).removesuffix("_")
        if dotted and args:
            inner = args.pop(0)
        named = {each.arg or "**": each.value for each in node.keywords}
        found = _known(node, name, args, named) if inner is not None else None
        if found is not None and inner is not None:
            return found, args[0] if found.kind == "keep" and dotted else inner
        return self._module(node)

    def _module(self, node: ast.Call) -> tuple[Layer, ast.expr] | None:
        """Return what a module of torch's does that is called: `self.dropout(x)`, `nn.Softmax(dim=-1)(x)`."""
        if len(node.args) != 1 or node.keywords:
            return None
        called = node.func
        made = called if isinstance(called, ast.Call) else _only_value(self._place, called)
        softmax = isinstance(made, ast.Call) and self._place.source.names.dotted(made.func) == "torch.nn.Softmax"
        if softmax and isinstance(made, ast.Call):
            dim = next((each.value for each in made.keywords if each.arg == "dim"), None)
            dim = made.args[0] if made.args else dim
            return (Layer("softmax", node, (dim,)), node.args[0]) if dim is not None else None
        if is_made_by(self._place.project, self._place.source, called, "torch.nn.Dropout"):
            return Layer("dropout", node, (called,)), node.args[0]
        if isinstance(called, ast.Name) and "drop" in called.id.lower():
            return Layer("dropout", node, (called,)), node.args[0]
        return None


def _only_value(place: EditPlace, node: ast.expr) -> ast.expr | None:
    values = attribute_values(place.project, place.source, node)
    return values[0][1] if len(values) == 1 else None


def _bound_by(statement: ast.stmt, name: str) -> tuple[ast.expr, ast.expr | None]:
    """Return what a statement binds a name to; in `if mask is not None:`, with what is asked there.

    Raises:
        NoAttention: it does more, or something else.
    """
    if isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
        test = statement.test
        asked = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)
        if asked and isinstance(test, ast.Compare) and ast.unparse(test.comparators[0]) == "None":
            value, inner = _bound_by(statement.body[0], name)
            if inner is None:
                return value, test.left
    if isinstance(statement, ast.Assign) and [ast.unparse(each) for each in statement.targets] == [name]:
        return statement.value, None
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and statement.target.id == name:
        operator = statement.op
        if isinstance(operator, ast.Mult | ast.Div | ast.Add):
            return ast.BinOp(ast.Name(name, ast.Load()), operator, statement.value), None
    call = statement.value if isinstance(statement, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    if call is not None and method is not None and is_in_place(method.attr) and ast.unparse(method.value) == name:
        return call, None
    raise NoAttention(f"{name} is read or bound between the products by more than they need")


def _arithmetic(node: ast.expr) -> tuple[Layer, ast.expr] | None:
    if not isinstance(node, ast.BinOp):
        return None
    if isinstance(node.op, ast.Div):
        return Layer("divide", node, (node.right,)), node.left
    if isinstance(node.op, ast.Mult | ast.Add):
        kind = "scale" if isinstance(node.op, ast.Mult) else "add"
        turned = isinstance(node.left, ast.Constant | ast.Attribute) and not isinstance(node.right, ast.Constant)
        scores, other = (node.right, node.left) if turned else (node.left, node.right)
        return Layer(kind, node, (other,)), scores
    return None


def _known(node: ast.expr, name: str, args: list[ast.expr], named: dict[str, ast.expr]) -> Layer | None:
    """Return what a function or method of tensors does; its first argument, the tensor, is not among `args`."""
    if name == "softmax":
        dim = args[0] if args else named.get("dim")
        wide = named.get("dtype")
        return Layer("softmax", node, (dim, *([wide] if wide is not None else []))) if dim is not None else None
    if name in ("to", "type_as", "float") and not named and len(args) <= 1:
        return Layer("cast", node, tuple(args))
    if name == "dropout":
        told = dict(zip(("p", "training"), args, strict=False)) | named
        return Layer("dropout", node, (told.get("p", ast.Constant(0.5)), told.get("training", ast.Constant(True))))
    if name in ("mul", "div", "add") and len(args) == 1 and not named:
        return Layer({"mul": "scale", "div": "divide", "add": "add"}[name], node, tuple(args))
    if name == "masked_fill":
        given = (*args, *(named[each] for each in ("mask", "value") if each in named))
        return Layer("fill", node, given) if len(given) == 2 else None
    if name == "where" and len(args) == 2 and not named:
        return Layer("keep", node, (node.args[0], args[1])) if isinstance(node, ast.Call) else None
    return None
