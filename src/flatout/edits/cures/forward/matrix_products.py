"""Products of matrices in their spellings: `@`, `matmul`, `bmm`, and `einsum` where it is one product of batches."""

import ast
from dataclasses import dataclass

from flatout.edits.reading.source_file import SourceFile

__all__ = ["Product", "permuted", "product_of", "rank_of_transpose", "without_transpose"]

_CALLS = ("matmul", "bmm")
_LAST_TWO = {"-2, -1", "-1, -2"}
_OF_DIMENSIONS = {"1, 2", "2, 1", "2, 3", "3, 2"}
_TURNED = {"0, 2, 1", "0, 1, 3, 2"}


@dataclass(frozen=True)
class Product:
    """`left @ right`; where it is an einsum, the letters of both and of what comes out."""

    node: ast.expr
    left: ast.expr
    right: ast.expr
    three: bool = False  # its tensors have three dimensions: bmm takes no others
    letters: tuple[str, str, str] = ("", "", "")


def product_of(source: SourceFile, node: ast.expr) -> Product | None:
    """Return the product that an expression is, None where it is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return Product(node, node.left, node.right)
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    dotted = source.names.dotted(node.func)
    if dotted == "torch.einsum":
        return _of_letters(node)
    if dotted in [f"torch.{name}" for name in _CALLS] and len(node.args) == 2:
        return Product(node, node.args[0], node.args[1], three=dotted.endswith("bmm"))
    if isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS and not dotted and len(node.args) == 1:
        return Product(node, node.func.value, node.args[0], three=node.func.attr == "bmm")
    return None


def _of_letters(node: ast.Call) -> Product | None:
    """Return the product of an einsum of two tensors."""
    if not node.args or not isinstance(node.args[0], ast.Constant) or not isinstance(node.args[0].value, str):
        return None
    factors = node.args[1:]
    if len(factors) == 1 and isinstance(factors[0], ast.List | ast.Tuple):
        factors = factors[0].elts
    given, _, out = node.args[0].value.replace(" ", "").partition("->")
    parts = given.split(",")
    plain = out.isalpha() and all(each.isalpha() and len({*each}) == len(each) for each in (*parts, out))
    if len(parts) != 2 or len(factors) != 2 or not plain:
        return None
    return Product(node, factors[0], factors[1], letters=(parts[0], parts[1], out))


def permuted(text: str, letters: str, wanted: str) -> str:
    """Return an expression with its dimensions, called `letters`, in the order of `wanted`.

    Raises:
        ValueError: these are not the same letters.
    """
    if sorted(letters) != sorted(wanted):
        raise ValueError
    if letters == wanted:
        return text
    return f"{text}.permute({', '.join(str(letters.index(each)) for each in wanted)})"


def without_transpose(node: ast.expr) -> ast.expr | None:
    """Return what an expression is the transpose of, over its last two dimensions; None where that is not sure."""
    if isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
        return node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return None
    given = ", ".join(map(ast.unparse, node.args))
    name = node.func.attr
    last = name in ("transpose", "swapaxes") and given in _LAST_TWO | _OF_DIMENSIONS
    turned = (name == "permute" and given.strip("()") in _TURNED) or (name == "t" and not given)
    return node.func.value if last or turned else None


def rank_of_transpose(node: ast.expr) -> int:
    """Return how many dimensions make a transpose one of the last two; 0 where it is that of any number."""
    if isinstance(node, ast.Attribute):
        return 2 if node.attr == "T" else 0
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return 0
    given = ", ".join(map(ast.unparse, node.args))
    if node.func.attr == "t" or given in _LAST_TWO:
        return 2 if node.func.attr == "t" else 0
    return max((int(each) for each in given if each.isdigit()), default=0) + 1
