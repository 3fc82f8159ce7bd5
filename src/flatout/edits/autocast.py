"""bfloat16 autocast around the calls of the model that are trained through, with their output in float32."""

import ast
from collections.abc import Sequence

import libcst as cst

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.rewrite import OnStatement, Unplaced, parse_line
from flatout.edits.trained_model import find_model, training_calls
from flatout.edits.written_edit import Context, WrittenEdit, with_changes, with_import
from flatout.fixes.core.edit import Autocast

__all__ = ["autocast"]

# Methods and functions that a tensor alone is used with.
_OF_TENSORS = {"argmax", "backward", "detach", "dim", "flatten", "item", "log_softmax", "max", "mean", "reshape"}
_OF_TENSORS |= {"shape", "size", "softmax", "squeeze", "sum", "transpose", "unsqueeze", "view", "permute", "float"}
_OF_NUMBERS = (ast.Sub, ast.Div, ast.Pow, ast.MatMult)  # what tuples, lists and dictionaries do not do
_LOSSES = "torch.nn.functional."
_OURS = "dtype=torch.bfloat16, cache_enabled=False"
_WITH = "with torch.autocast(next({model}.parameters()).device.type, " + _OURS + "):"
_OUTPUTS = "outputs"


def autocast(piece: Autocast, project: Project, context: Context) -> WrittenEdit:
    """Write autocast around every training call of the model, or around none."""
    del piece, context
    if "autocast" in project.mentions:
        said = "the code mentions autocast, so it may set this itself: check it there"
        return WrittenEdit(project, there=1) if _OURS in project.mentions else WrittenEdit(project, left=(said,))
    model = find_model(project)
    if isinstance(model, str):
        return WrittenEdit(project, left=(model,))
    calls = training_calls(project, model)
    if not calls:
        return WrittenEdit(project, left=(f"no call of {model.name} is found where it is trained",))
    lines: list[tuple[SourceFile, int, OnStatement]] = []
    for source, call in calls:
        around = _around(project, source, call)
        if around is None:
            said = "the model may return something other than one tensor: put autocast around this call by hand"
            return WrittenEdit(project, left=(source.at(call, said),))
        lines.append((source, source.statement(call).lineno, around))
    try:
        changed = with_changes(project, lines=lines)
        for at in {project.sources.index(source) for source, _, _ in lines}:
            changed = with_import(changed, at, "torch")
    except Unplaced:
        return WrittenEdit(
            project, left=(f"{model.name} is called where no block fits: put autocast around it by hand",)
        )
    return WrittenEdit(changed, changed=len(lines))


def _around(project: Project, source: SourceFile, call: ast.Call) -> OnStatement | None:
    """Return how the statement is put under autocast, None where it cannot surely be."""
    above = source.parents[call]
    if isinstance(above, ast.Assign) and len(above.targets) == 1 and isinstance(above.targets[0], ast.Name):
        name = above.targets[0].id
        return _Kept(call, name) if _is_tensor(project, source, call, name) else None
    free = all(_OUTPUTS not in each.names.bound and _OUTPUTS not in each.names.imports for each in project.sources)
    if free and _is_tensor_use(project, source, call) and _is_first(source, call):
        return _Handed(call)
    return None


def _is_first(source: SourceFile, node: ast.expr) -> bool:
    """Return whether nothing of its statement is worked out before `node`."""
    above = source.parents[node]
    if isinstance(above, ast.BinOp) and above.left is node:
        return _is_first(source, above)
    if isinstance(above, ast.Call) and above.args[:1] == [node] and _is_named(above.func):
        return _is_first(source, above)
    if isinstance(above, ast.Attribute) or (isinstance(above, ast.Call) and above.func is node):
        return _is_first(source, above)
    simple = isinstance(above, ast.Assign) and all(isinstance(each, ast.Name) for each in above.targets)
    return simple or isinstance(above, ast.Expr)


def _is_tensor(project: Project, source: SourceFile, call: ast.Call, name: str) -> bool:
    """Return whether `name` is used as a tensor is, and in no other way."""
    uses = [
        node
        for node in ast.walk(source.scope(call))
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    sure = [_is_tensor_use(project, source, node) for node in uses]
    return any(sure) and not any(each is False for each in sure)


def _is_tensor_use(project: Project, source: SourceFile, node: ast.expr) -> bool | None:
    """Return whether it shows a tensor, None where it does not show."""
    above = source.parents[node]
    if isinstance(above, ast.Attribute):
        return above.attr in _OF_TENSORS
    if isinstance(above, ast.BinOp) and isinstance(above.op, _OF_NUMBERS):
        return True
    if isinstance(above, ast.Subscript | ast.Starred | ast.For):
        return False
    return True if isinstance(above, ast.Call) and _is_loss(project, source, above, node) else None


def _is_named(node: ast.expr) -> bool:
    """Return whether an expression is a name with attributes: looking it up does nothing."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_loss(project: Project, source: SourceFile, call: ast.Call, first: ast.expr) -> bool:
    """Return whether torch computes a loss of `first`, the first argument, which is then a tensor."""
    if call.args[:1] != [first]:
        return False
    if source.names.dotted(call.func).startswith(_LOSSES):
        return True
    text = ast.unparse(call.func)
    made = [
        place.names.dotted(statement.value.func)
        for place, statement in project.nodes(ast.Assign)
        if isinstance(statement.value, ast.Call) and text in map(ast.unparse, statement.targets)
    ]
    return bool(made) and all(each.startswith("torch.nn.") and each.endswith("Loss") for each in made)


def _block(
    call: ast.Call, inner: cst.SimpleStatementLine, above: Sequence[cst.EmptyLine], module: cst.Module
) -> cst.With:
    head = _WITH.format(model=ast.unparse(call.func))
    block = cst.ensure_type(parse_line(f"{head}\n{module.default_indent}pass\n", module), cst.With)
    body = cst.ensure_type(block.body, cst.IndentedBlock).with_changes(body=[inner.with_changes(leading_lines=())])
    return block.with_changes(body=body, leading_lines=above)


class _Kept:
    """Puts `name = model(...)` under autocast, with a line behind it that makes the tensor float32."""

    def __init__(self, call: ast.Call, name: str) -> None:
        self._call, self._name = call, name

    def __call__(self, statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
        after = parse_line(f"{self._name} = {self._name}.float()", module)
        return _block(self._call, statement, statement.leading_lines, module), after


class _Handed:
    """Takes `model(...)` out of the call of a loss, puts it under autocast, and hands its float32 to the loss."""

    def __init__(self, call: ast.Call) -> None:
        self._text = ast.unparse(call)

    def __call__(self, statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
        finder = _Finder(self._text, module)
        statement.visit(finder)
        if len(finder.found) != 1:
            raise Unplaced
        (call,) = finder.found
        kept = cst.ensure_type(
            parse_line(f"{_OUTPUTS} = {module.code_for_node(call)}", module), cst.SimpleStatementLine
        )
        rest = statement.with_deep_changes(call, func=cst.parse_expression(f"{_OUTPUTS}.float"), args=())
        parsed = cst.ensure_type(cst.parse_expression(module.code_for_node(call)), cst.Call)
        model = ast.parse(module.code_for_node(parsed.func), mode="eval").body
        asked = ast.Call(func=model, args=[], keywords=[])
        return _block(asked, kept, statement.leading_lines, module), rest.with_changes(leading_lines=())


class _Finder(cst.CSTVisitor):
    """Finds the calls that read as `text` does."""

    def __init__(self, text: str, module: cst.Module) -> None:
        super().__init__()
        self._text, self._module = text, module
        self.found: list[cst.Call] = []

    def visit_Call(self, node: cst.Call) -> None:
        if ast.unparse(ast.parse(f"({self._module.code_for_node(node)})", mode="eval").body) == self._text:
            self.found.append(node)
