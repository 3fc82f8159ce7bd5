"""Tell from the user's source whether a line stands in a Python loop that runs once for each element of the data.

A loop over the layers of a model is normal; a loop over time steps, rows or pixels is a fault. The number of turns
cannot be read from source, so names, constants and the origin of a value decide; in doubt, the loop counts as healthy.
"""

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from flatout.rules.source.source_code import Function, ancestors, expressions, module_value
from flatout.schema.run import Frame

__all__ = [
    "Loop",
    "LoopAround",
    "data_loop",
    "in_loop",
    "loops_around",
    "may_multiply",
    "statement_apart",
]

Loop = ast.For | ast.While | ast.comprehension
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


@dataclass(frozen=True, slots=True)
class LoopAround:
    """A loop around a line."""

    loop: Loop
    line: int  # where it begins
    turn: Sequence[ast.AST]  # what each turn does
    frame: Frame


SHORT = 8  # a loop with at most this many turns counts as healthy
PARTS_OF_THE_MODEL = re.compile(
    r"layer|block|depth|stage|level|head|module|scale|branch|expert|cell|norm|conv|tower|pyramid|feature|group|unit|param|weight"
)
ELEMENTS_OF_THE_DATA = re.compile(
    r"(^|_)(t|b|n|batch|boxes|char|classes|documents?|elements?|examples?|frames?|images?|items?|labels?|len|length"
    r"|nodes?|pairs?|pixels?|points?|rows?|samples?|sentences?|seq|sequence|steps?|targets?|time|timesteps?|tokens?"
    r"|words?|width|height)(_|$)",
    re.IGNORECASE,
)
REFINEMENT = re.compile(r"steps?|iter")  # solvers and refinement heads loop over `range(self.num_steps)`
TRAINING = re.compile(r"loader|epoch|batches|dataset|iter|steps|train", re.IGNORECASE)
CUTS_INTO_ELEMENTS = frozenset({"tolist", "unbind"})
MOVE_OR_REDUCE = re.compile(  # methods of tensors and lists, functions of torch: none multiplies matrices
    r"abs|add|append|all|amax|amin|any|argmax|argmin|cat|clamp|clone|concat|contiguous|copy_|cumsum|detach|diff|div|eq"
    r"|exp|expand|extend|fill_|flatten|flip|float|full|gather|ge|get|gt|index_select|insert|int|item|items|keys|le|log"
    r"|long|lt|masked_fill|max|mean|min|mul|ne|norm|numel|numpy|ones|ones_like|pad|permute|pop|pow|prod|relu|repeat"
    r"|reshape|roll|scatter_add|select|sigmoid|sign|size|softmax|sort|split|sqrt|square|squeeze|stack|std|sub|sum|tanh"
    r"|tensor|to|tolist|topk|transpose|unbind|unsqueeze|update|values|var|view|where|zeros|zeros_like"
)
WRAPPERS = frozenset({"enumerate", "reversed", "zip", "tqdm", "list", "tuple", "iter"})


def in_loop(frame: Frame) -> bool:
    """Return whether the line of `frame` stands in a loop of its own function that is not the training loop."""
    return any(not _is_training_loop(around.loop) for around in loops_around(frame))


def data_loop(frame: Frame) -> int | None:
    """Return the first line of the loop around `frame` that runs over the data, or None."""
    function = next((node for node in ancestors(frame) if isinstance(node, Function)), None)
    for around in loops_around(frame):
        if _runs_over_data(around.loop, function) or _picks_rows(around, function) or _makes_many(around):
            return around.line
    return None


def may_multiply(frame: Frame, begins: int) -> bool:
    """Return whether a turn of the loop around `frame` that begins at that line may multiply matrices.

    Indexing, sums and the like do not; any other call may.
    """
    turns = [around.turn for around in loops_around(frame) if around.line == begins]
    nodes = [node for turn in turns for piece in turn for node in ast.walk(piece)]
    products = any(isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult) for node in nodes)
    return not turns or products or any(_may_multiply(node.func) for node in nodes if isinstance(node, ast.Call))


def _may_multiply(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        own = isinstance(called.value, ast.Name) and called.value.id == "self"  # a module, or a function of the script
        return own or not MOVE_OR_REDUCE.fullmatch(called.attr)
    return not isinstance(called, ast.Name) or not hasattr(builtins, called.id) or called.id == "map"


def statement_apart(frame: Frame, lines: Collection[int]) -> ast.stmt | None:
    """Return the largest statement around the line of `frame`, within its function, that holds none of `lines`."""
    found = None
    for node in ancestors(frame):
        if isinstance(node, Function | ast.ClassDef):
            break
        first, last = getattr(node, "lineno", frame.line), getattr(node, "end_lineno", frame.line)
        if any(first <= line <= last for line in lines):
            break
        found = node if isinstance(node, ast.stmt) else found
    return found


def _is_training_loop(loop: Loop) -> bool:
    """Return whether a loop goes from batch to batch or from epoch to epoch."""
    if isinstance(loop, ast.comprehension):
        return False
    condition = loop.test if isinstance(loop, ast.While) else loop.iter
    if isinstance(condition, ast.Constant) or TRAINING.search(ast.unparse(condition)):
        return True
    calls = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    names = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    by_hand = {"grad", "no_grad"} <= names  # computes gradients, and updates weights under no_grad
    return by_hand or bool(names & {"backward", "step"})


def loops_around(frame: Frame) -> Iterator[LoopAround]:
    """Give the loops around a line within its own function, innermost first."""
    for node in ancestors(frame):
        if isinstance(node, Function):
            return
        if isinstance(node, ast.For | ast.While):
            if frame.line > node.lineno or _on_one_line(node):
                yield LoopAround(node, node.lineno, node.body, frame)
        elif isinstance(node, ast.stmt):
            yield from _comprehensions(node, frame)


def _on_one_line(node: ast.For | ast.While) -> bool:
    return node.body[0].lineno == node.lineno


def _comprehensions(node: ast.stmt, frame: Frame) -> Iterator[LoopAround]:
    for head in expressions(node):
        for whole in (part for part in ast.walk(head) if isinstance(part, Comprehension)):
            turn = [whole.key, whole.value] if isinstance(whole, ast.DictComp) else [whole.elt]
            yield from (LoopAround(loop, node.lineno, turn, frame) for loop in whole.generators)


def _picks_rows(around: LoopAround, function: ast.AST | None) -> bool:
    """Return whether a loop runs over indices given as an argument, and picks those rows from a tensor."""
    loop = around.loop
    if isinstance(loop, ast.While) or not isinstance(loop.target, ast.Name) or not isinstance(loop.iter, ast.Name):
        return False
    taken = [argument.arg for argument in function.args.args] if isinstance(function, ast.FunctionDef) else []
    if loop.iter.id not in taken or PARTS_OF_THE_MODEL.search(loop.iter.id.lower()):
        return False
    name = loop.target.id
    picked = [part.slice for piece in around.turn for part in ast.walk(piece) if isinstance(part, ast.Subscript)]
    return any(isinstance(index, ast.Name) and index.id == name for index in picked)


def _makes_many(around: LoopAround) -> bool:
    """Return whether a comprehension makes as many independent results as a constant of the module says.

    A loop over layers passes its result from turn to turn. The turns of a comprehension are independent, so one
    operation on all of them at once would do.
    """
    loop = around.loop
    if not isinstance(loop, ast.comprehension) or not isinstance(loop.iter, ast.Call) or len(loop.iter.args) != 1:
        return False
    count = loop.iter.args[0]
    if ast.unparse(loop.iter.func) != "range" or not isinstance(count, ast.Name):
        return False
    value = None if PARTS_OF_THE_MODEL.search(count.id.lower()) else module_value(around.frame, count.id)
    return isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value > SHORT


def _runs_over_data(loop: Loop, function: ast.AST | None) -> bool:
    if isinstance(loop, ast.While):
        return True
    return any(_is_data(source, function) for source in _sources(loop.iter))


def _sources(iterated: ast.expr) -> Sequence[ast.expr]:
    """Return what is really iterated: the arguments of `enumerate`, `zip` and the like."""
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id in WRAPPERS:
        return [source for argument in iterated.args for source in _sources(argument)]
    return [iterated]


def _is_data(source: ast.expr, function: ast.AST | None) -> bool:
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id == "range":
        return bool(source.args) and _is_long(source.args[min(1, len(source.args) - 1)], function)
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
        return source.func.attr in CUTS_INTO_ELEMENTS
    if isinstance(source, ast.Name):
        value = _assigned(source.id, function)
        if value is not None and not isinstance(value, ast.Name):
            return _is_data(value, function)
        return _sounds_like_data(source.id) or _is_the_input(source.id, function)
    return False


def _is_the_input(name: str, function: ast.AST | None) -> bool:
    """Return whether `name` is the only argument of a `forward`: a batch, iterated sample by sample."""
    if not isinstance(function, ast.FunctionDef) or function.name != "forward":
        return False
    taken = [argument.arg for argument in function.args.args if argument.arg != "self"]
    return taken == [name] and not PARTS_OF_THE_MODEL.search(name)


def _is_long(count: ast.expr, function: ast.AST | None) -> bool:
    """Return whether the end of a `range` is the size of the data."""
    if isinstance(count, ast.Constant):
        return isinstance(count.value, int) and count.value > SHORT
    if isinstance(count, ast.Name):
        value = _assigned(count.id, function)
        return _is_long(value, None) if value is not None else _sounds_like_data(count.id)
    if isinstance(count, ast.BinOp):
        return _is_long(count.left, function) or _is_long(count.right, function)
    text = ast.unparse(count)
    if re.search(r"\.size\(|\.shape\b|\.numel\(", text):
        return True
    if PARTS_OF_THE_MODEL.search(text.lower()):
        return False
    if isinstance(count, ast.Call) and ast.unparse(count.func) == "len":
        return not text.startswith("len(self.")
    return isinstance(count, ast.Attribute) and not REFINEMENT.search(count.attr) and _sounds_like_data(count.attr)


def _sounds_like_data(name: str) -> bool:
    return bool(ELEMENTS_OF_THE_DATA.search(name)) and not PARTS_OF_THE_MODEL.search(name.lower())


def _assigned(name: str, function: ast.AST | None) -> ast.expr | None:
    """Return what the function assigns to `name`, also as one of several names; None when it does not."""
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Assign):
            names = [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            if name in names:
                return node.value
    return None
