"""Whether a tensor is only computed with: nothing writes into it, keeps it, or asks which tensor it is."""

import ast
from collections.abc import Container

from flatout.edits.reading.called_layers import makers
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import COMPUTING, SAME_VALUES
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["only_computed"]

_NEW = (COMPUTING - {"is_tensor", "where"}) | {  # functions and methods that give something new
    "addmm", "baddbmm", "binary_cross_entropy", "binary_cross_entropy_with_logits", "bmm", "cat", "concat", "conv1d",
    "conv2d", "cosine_similarity", "cross_entropy", "cumsum", "einsum", "elu", "embedding", "gelu", "group_norm",
    "kl_div", "l1_loss", "layer_norm", "linear", "log_softmax", "logsumexp", "matmul", "mm", "mse_loss", "mv",
    "nll_loss", "normalize", "prod", "relu", "sigmoid", "silu", "smooth_l1_loss", "softmax", "softplus", "stack",
    "topk",
}  # fmt: skip
_VIEWS = SAME_VALUES | {"chunk", "dropout", "expand", "movedim", "permute", "split", "t", "transpose"}
_SHOWN = frozenset({"device", "dtype", "ndim", "requires_grad", "shape"})
_LAYERS = frozenset(
    f"torch.nn.{name}"
    for name in (
        "Bilinear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "GRU", "GRUCell", "LSTM", "LSTMCell", "LayerNorm",
        "Linear", "MultiheadAttention", "RNN", "RNNCell", "Sigmoid", "Tanh",
    )
)  # fmt: skip
_ACTIVATIONS = frozenset(f"torch.nn.{name}" for name in ("CELU", "ELU", "GELU", "ReLU", "SELU", "SiLU", "Softplus"))
_JOINS = frozenset(f"torch.{name}" for name in ("cat", "concat", "hstack", "stack", "vstack"))
_CALLED = frozenset({"forward", "__call__", "__class__"})
_DEPTH = 2  # functions of the user's that hand it on


def only_computed(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether what an expression gives is only computed with, here and wherever it has a name."""
    return _Uses(project).only_compute(source, node, _DEPTH)


class _Uses:
    """Uses of expressions in a project; names that are being looked at already are not asked again."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._seen: set[tuple[ast.AST, str]] = set()

    def only_compute(self, source: SourceFile, node: ast.expr, depth: int) -> bool:
        above = source.parents[node]
        if isinstance(above, ast.BinOp) and any(map(_is_text, (above.left, above.right))):
            return False
        if isinstance(above, ast.BinOp | ast.UnaryOp | ast.Expr):
            return not (isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not))
        if isinstance(above, ast.Compare):
            return all(isinstance(each, ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE) for each in above.ops)
        if isinstance(above, ast.AugAssign):
            return above.value is node and isinstance(above.target, ast.Name)
        if isinstance(above, ast.IfExp):
            return above.test is not node and self.only_compute(source, above, depth)
        if isinstance(above, ast.Subscript):
            is_part = above.value is node and isinstance(above.ctx, ast.Load)
            return is_part and self.only_compute(source, above, depth)
        if isinstance(above, ast.Assign):
            target = above.targets[0]
            is_name = len(above.targets) == 1 and isinstance(target, ast.Name)
            return is_name and self._are_computed(source, source.scope(above), target.id, depth)  # type: ignore[attr-defined]
        if isinstance(above, ast.Attribute):
            return self._is_asked(source, above, depth)
        return self._is_argument(source, node, above, depth)

    def _is_argument(self, source: SourceFile, node: ast.expr, above: ast.AST, depth: int) -> bool:
        call = source.parents[above] if isinstance(above, ast.List | ast.Tuple | ast.keyword) else above
        if not isinstance(call, ast.Call):
            return False
        if isinstance(above, ast.List | ast.Tuple):
            return above in call.args and source.names.dotted(call.func) in _JOINS
        return (above is not call or node in call.args) and self._is_given(source, call, node, depth)

    def _are_computed(self, source: SourceFile, scope: ast.AST, name: str, depth: int) -> bool:
        """Return whether a name of a scope is only computed with, wherever it stands."""
        if (scope, name) in self._seen:
            return True
        self._seen.add((scope, name))
        for node in ast.walk(scope):
            if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
                return False
            if not isinstance(node, ast.Name) or node.id != name:
                continue
            if isinstance(node.ctx, ast.Store) and isinstance(source.parents[node], ast.AugAssign):
                return False
            if isinstance(node.ctx, ast.Load) and not self.only_compute(source, node, depth):
                return False
        return True

    def _is_asked(self, source: SourceFile, node: ast.Attribute, depth: int) -> bool:
        """Return whether an attribute is one that computes, or that shows what a tensor is."""
        call = source.parents[node]
        if not isinstance(call, ast.Call) or call.func is not node:
            return node.attr in _SHOWN and isinstance(node.ctx, ast.Load)
        if any(each.arg in ("out", "inplace") for each in call.keywords):
            return False
        return node.attr in _NEW or (node.attr in _VIEWS and self.only_compute(source, call, depth))

    def _is_given(self, source: SourceFile, call: ast.Call, node: ast.expr, depth: int) -> bool:
        """Return whether a call only computes with what it is given."""
        if any(each.arg in (None, "out", "inplace") for each in call.keywords):
            return False
        if any(isinstance(each, ast.Starred) or _is_true(each) for each in call.args):
            return False
        dotted = source.names.dotted(call.func)
        if dotted:
            package, _, name = dotted.rpartition(".")
            of_torch = package in ("torch", "torch.nn.functional", "torch.linalg")
            return of_torch and (name in _NEW or (name in _VIEWS and self.only_compute(source, call, depth)))
        if self._is_replaced(_CALLED):
            return False
        made = makers(self._project, source, call.func)
        if made:
            return all(self._layer_computes(place, each, call, node, depth) for place, each in made)
        known = self._project.functions.get(call.func.id, ()) if isinstance(call.func, ast.Name) else ()
        is_bound = isinstance(call.func, ast.Name) and _is_rebound(source, call.func.id)
        if len(known) != 1 or is_bound or depth == 0 or self._is_replaced({known[0][1].name}):
            return False
        return self._argument_is_computed(*known[0], call, node, depth - 1, skip=0)

    def _is_replaced(self, names: Container[str]) -> bool:
        """Return whether an attribute of one of these names is set, of a class, an object or a module."""
        nodes = (each for _, each in self._project.nodes(ast.Attribute) if not isinstance(each.ctx, ast.Load))
        return any(each.attr in names for each in nodes)

    def _layer_computes(self, place: SourceFile, made: ast.Call, call: ast.Call, node: ast.expr, depth: int) -> bool:
        dotted = place.names.dotted(made.func)
        if dotted in _LAYERS:
            return True
        if dotted in _ACTIVATIONS:
            return not made.keywords and not made.args
        if dotted == "torch.nn.Sequential":
            parts = [each for each in made.args if isinstance(each, ast.Call)]
            whole = bool(parts) and len(parts) == len(made.args) and not made.keywords
            return whole and all(self._layer_computes(place, each, call, node, 0) for each in parts)
        name = made.func.id if isinstance(made.func, ast.Name) else ""
        classes = self._project.classes.get(name, ())
        if dotted.startswith("torch.") or len(classes) != 1 or depth == 0:
            return False
        where, definition = classes[0]
        forwards = [each for each in definition.body if isinstance(each, Function) and each.name == "forward"]
        bases = [where.names.dotted(each) for each in definition.bases]
        if len(forwards) != 1 or bases != ["torch.nn.Module"] or definition.decorator_list:
            return False
        return self._argument_is_computed(where, forwards[0], call, node, depth - 1, skip=1)

    def _argument_is_computed(
        self, source: SourceFile, function: Function, call: ast.Call, node: ast.expr, depth: int, *, skip: int
    ) -> bool:
        """Return whether a function of the user's only computes with the argument that it is given."""
        if function.decorator_list or function.args.vararg or function.args.kwarg:
            return False
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][skip:]
        if node in call.args:
            at = call.args.index(node)
            name = names[at] if at < len(names) else ""
        else:
            name = next((each.arg or "" for each in call.keywords if each.value is node), "")
        return bool(name) and self._are_computed(source, function, name, depth)


def _is_rebound(source: SourceFile, name: str) -> bool:
    return any(
        (isinstance(each, ast.Name) and each.id == name and not isinstance(each.ctx, ast.Load))
        or (isinstance(each, ast.arg) and each.arg == name)
        for each in ast.walk(source.tree)
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_true(node: ast.expr) -> bool:
    """Return whether an argument may be an `inplace` that is told by its place."""
    return isinstance(node, ast.Constant) and node.value is True
