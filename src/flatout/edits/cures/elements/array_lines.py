"""The lines that make arrays before a loop, in the memory of its tensors: of all that is read together, or of none."""

import ast
from dataclasses import dataclass, field

from flatout.edits.cures.element_reads import Reads, is_flat
from flatout.edits.cures.elements.unsuited_code import torch_name
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges, fresh_name

__all__ = ["Written", "put_in"]


@dataclass(frozen=True)
class Written:
    """A tensor that is written to by numbers, the writes, and where its array is to be made."""

    whole: ast.expr
    items: tuple[ast.Subscript, ...]
    anchor: ast.stmt
    types: tuple[str, ...]
    by_elements: bool


@dataclass
class _Names:
    """Names for what is made before loops."""

    source: SourceFile
    taken: dict[tuple[ast.stmt, str, str], str] = field(default_factory=dict)

    def of(self, anchor: ast.stmt, kind: str, whole: str) -> str:
        root = whole.partition("(")[0]  # `x.view` of `x.view(-1)`
        root = root.rpartition(".")[0] if root != whole else root
        stem, key, number = f"{kind}_{root.rpartition('.')[2]}", (anchor, kind, whole), 1
        wanted = stem
        while key not in self.taken and fresh_name(self.source, wanted) in self.taken.values():
            number += 1
            wanted = f"{stem}_{number}"
        return self.taken.setdefault(key, fresh_name(self.source, wanted))


def put_in(source: SourceFile, changes: TextChanges, reads: Reads, written: list[Written]) -> None:
    """Make the arrays before the loops, and let the loops read and write these.

    Raises:
        Unplaced: there is no place for lines before one.
    """
    names, torch = _Names(source), torch_name(source)
    anchors = {each.anchor for each in reads.elements} | {each.anchor for each in reads.items}
    anchors |= {each.anchor for each in written}
    for anchor in sorted(anchors, key=lambda each: each.lineno):
        if source.lines[anchor.lineno - 1].lstrip().startswith("elif"):  # it would go with the `if` of ours
            raise Unplaced
        made: dict[str, str] = {}
        for element in [each for each in reads.elements if each.anchor is anchor]:
            text = changes.text(element.whole)
            kind = "elements_of" if is_flat(element.whole) else "numbers_of"
            made[names.of(anchor, kind, ast.unparse(element.whole))] = text
            changes.replace(element.whole, names.of(anchor, kind, ast.unparse(element.whole)))
        for item in [each for each in reads.items if each.anchor is anchor]:
            made[names.of(anchor, "numbers_of", item.whole)] = item.whole
            changes.replace(item.node.value, names.of(anchor, "numbers_of", item.whole))
        arrays: list[tuple[str, Written]] = []
        for each in [each for each in written if each.anchor is anchor]:
            name = names.of(anchor, "array_of", ast.unparse(each.whole))
            arrays.append((name, each))
            for place in each.items:
                changes.replace(place.value, name)
        changes.before(anchor, *_lines(torch, made, reads.containers(anchor), arrays))


def _lines(torch: str, made: dict[str, str], asked: list[str], arrays: list[tuple[str, Written]]) -> list[str]:
    lines = [f"{name} = {text}" for name, text in made.items()]
    lines += [f"{name} = {ast.unparse(each.whole)}" for name, each in arrays]
    if made:
        each = ", ".join(made) + ("," if len(made) == 1 else "")
        others = "".join(f"type({name}) in ({torch}.Tensor, list) and " for name in asked)
        lines += [
            f"if {others}all(",
            f'    type(each) is {torch}.Tensor and each.layout is {torch}.strided and each.device.type == "cpu"',
            f"    and each.dtype is {torch}.int64 and each.dim() == 1",
            f"    for each in ({each})",
            "):  # then numbers mean the same as elements, and arrays are the same memory",
            *(f"    {name} = {name}.numpy()" for name in made),
        ]
    for name, write in arrays:
        inner = "    " if write.by_elements else ""
        types = ", ".join(f"{torch}.{each}" for each in write.types) + ("," if len(write.types) == 1 else "")
        lines += [
            f"{inner}if (",
            f'{inner}    type({name}) is {torch}.Tensor and {name}.device.type == "cpu"',
            f"{inner}    and {name}.dtype in ({types})",
            f"{inner}    and not {name}.requires_grad and not {name}.is_inference()",
            f"{inner}):",
            f"{inner}    {name} = {name}.numpy()  # the same memory",
        ]
    return lines
