"""Attention that is written out, as one call of `scaled_dot_product_attention`.

Factors that are numbers become `scale`, others are multiplied to the queries. What is filled with minus infinity
becomes a mask of what is attended to; what is filled with another number, or added, is added there, too. The steps stay
for what the call does otherwise: the code asks for it when it runs.
"""

import ast

from flatout.edits.cures.forward.attention_call import QUESTION, AttentionCall
from flatout.edits.cures.forward.attention_chain import Attention, NoAttention, attention_in
from flatout.edits.cures.weights_apart import can_ask, named_question
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, loads, stores
from flatout.edits.reading.in_place import changed_in_place
from flatout.edits.reading.writes.changed_meanings import changed_meaning, traced_somewhere
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["as_fused_attention"]

_SEEING = (
    "forward_hook", "forward_pre_hook", "create_graph", "jacrev", "jacfwd", "hessian", "vmap", "autograd.functional",
    "globals()", "locals()", "vars()", "__torch_function__", "__torch_dispatch__",
)  # fmt: skip
_VIEWS = ("transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "size", "sqrt", "float", "logical_not")


def as_fused_attention(place: EditPlace) -> WrittenEdit:
    """Write the attention that ends on the finding's line as one call."""
    try:
        attention = attention_in(place)
        call = AttentionCall(place, attention)
        text = call.text()
    except NoAttention as error:
        return place.left(str(error))
    except ValueError:
        return place.left("the dimensions of its einsum are not those of attention")
    reason = _refused(place, attention, call)
    if reason:
        return place.left(reason)
    changes = TextChanges(place.source)
    question = named_question(changes, place.source, "attends_alike", QUESTION)
    _write(place, changes, attention, text, call.asked_by(question))
    return WrittenEdit(changes.done(place.project), changed=1)


def _write(place: EditPlace, changes: TextChanges, attention: Attention, text: str, asked: str) -> None:
    """Write the call under the question, and the steps in the other branch.

    Raises:
        Unplaced: they do not stand on lines of their own.
    """
    last, old = place.statement, changes.text(attention.out.node)
    whole = changes.text(last)
    if whole.count(old) != 1 or "\n" in whole:
        raise Unplaced
    line = place.source.lines[last.lineno - 1]
    inner = "\t" if line.startswith("\t") else "    "
    indent = line[: len(line) - len(line.lstrip())] + inner
    steps = sorted(attention.statements, key=lambda each: each.lineno)
    moved = [each for step in steps for each in changes.written(step)]
    changes.before(last, f"if {asked}:", f"{inner}{whole.replace(old, text)}")
    changes.indented(last, "\n".join(["else:", *(f"{indent}{each}" for each in moved)]))
    for each in steps:
        changes.remove(each)


# -- where it may not be written --------------------------------------------------------------------------------------


def _refused(place: EditPlace, attention: Attention, call: AttentionCall) -> str:
    """Return why the steps between the products cannot go, "" where they can."""
    if not can_ask(place.source):
        return "torch is not imported by its name at the top of the file"
    seen = next((each for each in _SEEING if each in place.project.mentions), "")
    if seen:
        return f"{seen} may see the steps, or need derivatives of derivatives"
    meaning = changed_meaning(place.project) or traced_somewhere(place.project)
    if meaning:
        return meaning
    taken = {node for each in (*attention.statements, attention.out.node) for node in ast.walk(each)}
    names = stores(attention.statements)
    for node in ast.walk(place.source.scope(place.statement)):
        if isinstance(node, ast.Name) and node.id in names and node not in taken:
            return f"{node.id}, which would no longer be made, is read or bound elsewhere"
    moved = _moved(attention)
    read = loads(moved)
    if read & names:
        return f"{min(read & names)} is read between the products for more than its numbers"
    for node in (inner for each in call.twice for inner in ast.walk(each)):
        is_view = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS
        if isinstance(node, ast.NamedExpr | ast.Await) or (isinstance(node, ast.Call) and not is_view):
            return f"{ast.unparse(node)} would be worked out twice: give it a name"
    return _refused_between(place, attention, moved)


def _moved(attention: Attention) -> list[ast.expr]:
    """Return what is worked out a little later than before."""
    conditions = [each.unless_none for each in attention.layers if each.unless_none is not None]
    masks = [given for each in attention.layers if each.kind != "cast" for given in each.given]
    return [attention.scores.left, attention.scores.right, *masks, *conditions]


def _refused_between(place: EditPlace, attention: Attention, moved: list[ast.expr]) -> str:
    if not attention.statements:
        return ""
    block = block_of(place.source, place.statement)
    first = min(block.index(each) for each in attention.statements)
    between = [each for each in block[first : block.index(place.statement)] if each not in attention.statements]
    for name in sorted(loads(moved)):
        if name in stores(between) or changed_in_place(between, name):
            return f"{name} is bound or changed between the products"
    calls = [node for each in between for node in ast.walk(each) if isinstance(node, ast.Call)]
    said = [each for each in calls if not (isinstance(each.func, ast.Attribute) and each.func.attr in _VIEWS)]
    if said:
        return f"{ast.unparse(said[0])} between the products may draw random numbers, or change something"
    calls = [node for each in moved for node in ast.walk(each) if isinstance(node, ast.Call)]
    loud = [each for each in calls if not (isinstance(each.func, ast.Attribute) and each.func.attr in _VIEWS)]
    return f"{ast.unparse(loud[0])} would be called later than before" if between and loud else ""
