"""Loops over rows, written as a function of a row and what does it to all of them."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.edits.cures.rows.row_bodies import Cut, RowFacts
from flatout.edits.cures.rows.row_loops import RowLoop, is_length_of
from flatout.edits.cures.rows.row_results import RowResult
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.source_file import SourceFile, span
from flatout.edits.text_changes import TextChanges, fresh_name

__all__ = ["RowWork", "call_of_all", "condition", "definition", "instead_of_loop"]

_ELEMENTS = "2**20"  # in what is computed of the rows that are taken at once
_ROWS = 64  # at once, where an operation makes more elements than it is given


@dataclass(frozen=True)
class RowWork:
    """A loop that can be written otherwise: what its body does first, and what it keeps."""

    source: SourceFile
    loop: RowLoop
    first: Sequence[ast.stmt]
    results: Sequence[RowResult]
    facts: RowFacts

    @property
    def varying(self) -> list[RowResult]:
        """The results that are made of a row."""
        return [each for each in self.results if not each.is_fixed]

    @property
    def count(self) -> str:
        """How many turns the loop has, as an expression."""
        return ast.unparse(self.loop.count) if self.loop.count is not None else f"len({next(iter(self.facts.params))})"


def definition(work: RowWork, changes: TextChanges, name: str) -> Iterator[str]:
    """Yield the lines of a function of one row."""
    params = [*work.facts.params.values(), *([work.loop.index] if work.facts.counts else [])]
    yield f"def {name}({', '.join(params)}):"
    for each in work.first:
        yield f"    {_cut(work.source, changes, each, work.facts.cuts)}"
    values = [_returned(work.source, changes, each, work.facts.cuts) for each in work.varying]
    yield f"    return {', '.join(values)}"


def call_of_all(work: RowWork, name: str, torch: str, at_once: str = "") -> str:
    """Return the call that does it to all rows; `at_once`: how many are taken together, where that has a name."""
    facts, count = work.facts, work.count
    rows = [each if _has_count(work.loop, each) else f"{each}[:{count}]" for each in facts.params]
    if facts.counts:
        rows.append(f"{torch}.arange({count}, device={next(iter(facts.params))}.device)")
    return f"{torch}.vmap({name}, chunk_size={at_once or _at_once(work, torch)})({', '.join(rows)})"


def instead_of_loop(work: RowWork, changes: TextChanges, name: str, torch: str) -> Iterator[str]:
    """Yield the lines before a loop that then stands below `else:`."""
    yield from definition(work, changes, name)
    yield f"if {condition(work, name, torch)}:"
    num = fresh_name(work.source, "num_at_once")
    yield f"    {num} = {_at_once(work, torch)}  # so that memory stays bounded"
    call = call_of_all(work, name, torch, num)
    names = [f"{name}_{number}" for number in range(1, len(work.varying) + 1)] if len(work.varying) > 1 else [call]
    if len(work.varying) > 1:
        yield f"    {', '.join(names)} = {call}"
    for one, of in zip(work.varying, names, strict=True):
        for line in _kept(work, one, of):
            yield f"    {line}"
    for one in (each for each in work.results if each.is_fixed):
        yield f"    for {fresh_name(work.source, 'each')} in range({work.count}):"
        yield f"        {ast.unparse(one.into)} += {ast.unparse(one.value)}"


def _has_count(loop: RowLoop, whole: str) -> bool:
    """Return whether the loop has as many turns as there are rows in what is called `whole`, where it is no error."""
    return loop.count is None or is_length_of(loop.count, whole)


def condition(work: RowWork, name: str, torch: str) -> str:
    """Return what has to be so for all rows to be done at once, as an expression."""
    loop, facts, count = work.loop, work.facts, work.count
    wholes = [*facts.params]
    tensors = [*dict.fromkeys([*wholes, *facts.tensors])]
    kinds = f"in ({torch}.Tensor, {torch}.nn.Parameter)"  # classes made from them may compute in another way
    parts = [f"type({tensors[0]}) {kinds}"]
    if len(tensors) > 1:
        parts = [f"all(type(each) {kinds} for each in ({', '.join(tensors)}))"]
    if loop.count is None:
        lengths = " == ".join(f"len({each})" for each in wholes)
        parts.append(f"{lengths} > 0" if len(wholes) > 1 else lengths)
    else:
        others = [each for each in wholes if not _has_count(loop, each)]
        bounds = [f"{count} <= len({each})" for each in others]
        parts += [f"0 < {bounds[0]}", *bounds[1:]] if bounds else [f"{count} > 0"]
    rows = ", ".join([*(f"{each}[0]" for each in wholes), *(["0"] if facts.counts else [])])
    kept = [one for one in work.varying if one.target is not None]
    if len(work.varying) == 1 and kept:
        parts.append(f"{name}({rows}).shape == {_place(kept[0], loop, '0')}.shape")
    elif kept:
        shapes = ", ".join(f"{_place(one, loop, '0')}.shape" for one in kept)
        numbers = [number for number, one in enumerate(work.varying) if one in kept]
        parts.append(f"[{name}({rows})[at].shape for at in {numbers}] == [{shapes}]")
    return " and ".join(parts)


def _place(result: RowResult, loop: RowLoop, number: str) -> str:
    """Return the place of a result, with something else in place of the number of the turn."""
    assert result.target is not None
    parts = result.target.slice.elts if isinstance(result.target.slice, ast.Tuple) else [result.target.slice]
    texts = [number if isinstance(each, ast.Name) and each.id == loop.index else ast.unparse(each) for each in parts]
    return f"{ast.unparse(result.into)}[{', '.join(texts)}]"


def _kept(work: RowWork, result: RowResult, values: str) -> Iterator[str]:
    place = _place(result, work.loop, f":{work.count}") if result.target is not None else ""
    if place and not result.in_numpy:
        yield f"{place} = {values}"
        return
    values = f"{values}.double()" if result.kind == "float" else values
    values = values if result.kind == "tensor" else f"{values}.tolist()"
    if place:
        yield f"{place} = {values}"
        return
    if result.adds:
        each = fresh_name(work.source, "each")
        yield f"for {each} in {values}:"
        yield f"    {ast.unparse(result.into)} += {each}"
    else:
        yield f"{ast.unparse(result.into)}.extend({values})"


def _is_number(source: SourceFile, node: ast.expr) -> bool:
    """Return whether a name stands for a number in sight, wherever the file binds it."""
    named = [each for each in ast.walk(source.tree) if isinstance(each, ast.Name | ast.arg)]
    named = [each for each in named if (each.arg if isinstance(each, ast.arg) else each.id) == ast.unparse(node)]
    stored = [each for each in named if isinstance(each, ast.arg) or isinstance(each.ctx, ast.Store)]
    bound = [value for each in ast.walk(source.tree) for to, value in pairs(each) if to in stored]
    is_bound = bool(bound) and len(bound) == len(stored)
    return is_bound and all(isinstance(each, ast.Constant) and type(each.value) in (int, float) for each in bound)


def _at_once(work: RowWork, torch: str) -> str:
    """Return how many rows are done at once, as an expression."""
    source, facts = work.source, work.facts
    sizes = [f"{each}[0].numel()" for each in facts.params]
    sizes += [f"{each}.numel()" for each in facts.outer if each in facts.tensors]
    unsure = [
        each for each in facts.operands if each not in facts.tensors and not _is_number(source, facts.outer[each])
    ]
    sizes += [f"{torch}.as_tensor({each}).numel()" for each in unsure]
    whole = f"{_ELEMENTS} // (1 + {' + '.join(sizes)})"
    return f"max(1, min({_ROWS}, {whole}))" if facts.grows else f"max(1, {whole})"


def _returned(source: SourceFile, changes: TextChanges, result: RowResult, cuts: Sequence[Cut]) -> str:
    text = _cut(source, changes, result.value, cuts)
    is_whole = isinstance(result.value, ast.Call | ast.Name) and "\n" not in text
    if result.kind != "tensor" and not result.is_single:
        return f"{text if is_whole else f'({text})'}.squeeze()"
    return text if "\n" not in text else f"({text})"


def _cut(source: SourceFile, changes: TextChanges, node: ast.expr | ast.stmt, cuts: Sequence[Cut]) -> str:
    """Return how a node is written, with the names of rows where the loop cuts them out."""
    text, starts = changes.text(node), [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    top, column, _, _ = span(source, node)  # type: ignore[arg-type]

    def at(row: int, of: int) -> int:
        return starts[row - top] + of - (column if row == top else 0)

    inside = {*ast.walk(node)}
    for whole, before, new in sorted(cuts, key=lambda cut: span(source, cut[0])[:2], reverse=True):
        if whole in inside:
            first, start, last, end = span(source, whole)
            last, end = span(source, before)[:2] if before is not None else (last, end)
            text = text[: at(first, start)] + new + text[at(last, end) :]
    return text
