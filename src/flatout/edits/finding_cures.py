"""Findings carried out on a project: those whose cure is a change of the lines that they name."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from flatout.edits.cures.collected_pieces import collected
from flatout.edits.cures.detached_arguments import with_detached_arguments
from flatout.edits.cures.element_writes import by_array
from flatout.edits.cures.foreach_loops import with_foreach
from flatout.edits.cures.forward.dynamic_shapes import with_dynamic_shapes
from flatout.edits.cures.forward.early_rows import rows_before_layer
from flatout.edits.cures.forward.evaluated_calls import without_recording
from flatout.edits.cures.forward.fused_attention import as_fused_attention
from flatout.edits.cures.forward.needless_copies import by_broadcast, without_copy
from flatout.edits.cures.forward.repeated_calls import with_earlier_outputs
from flatout.edits.cures.forward.shorter_batches import cut_to_longest
from flatout.edits.cures.lines.builtin_sums import as_one_operation
from flatout.edits.cures.lines.guarded_logs import behind_level
from flatout.edits.cures.lines.product_order import from_the_right
from flatout.edits.cures.list_lookups import by_dictionaries
from flatout.edits.cures.needed_gradients import with_needed_inputs
from flatout.edits.cures.pair_distances import without_differences
from flatout.edits.cures.reads.deferred_reads import read_later
from flatout.edits.cures.reductions import by_maximum, by_sums
from flatout.edits.cures.row_lookups import by_rows, cut_once
from flatout.edits.cures.seldom_penalties import every_eighth_time
from flatout.edits.cures.seldom_work import into_branch
from flatout.edits.cures.silent_hooks import without_hooks
from flatout.edits.cures.sparse_tables import with_sparse_gradients
from flatout.edits.cures.stacked_arrays import in_one_array, padded_at_once
from flatout.edits.cures.state_copies import without_deepcopy
from flatout.edits.cures.summed_backward import in_one_pass
from flatout.edits.cures.untrained_calls import without_graph
from flatout.edits.detached_values import detached
from flatout.edits.finding_edit import EditPlace, FindingEdit
from flatout.edits.given_diff import edit_of
from flatout.edits.line_moves import line_now
from flatout.edits.no_gradients import without_gradients
from flatout.edits.process_flags import no_anomaly_detection
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.recipe_edits import EditOutcome
from flatout.edits.removed_calls import removed
from flatout.edits.rewrite import Unplaced
from flatout.edits.written_edit import WrittenEdit
from flatout.fixes.source.source_edit import SourceEdit, read_text
from flatout.rules.core.catalog import rule_of
from flatout.rules.core.rule import Rule
from flatout.schema.finding import Finding
from flatout.schema.trial import Equivalence

__all__ = [
    "EDITS",
    "TriedEdit",
    "edits_for",
    "edits_for_findings",
    "edits_in_words",
    "tried_edits",
    "write_findings_in",
]

_ROUNDING = Equivalence.ROUNDING


def _at_line(write: Callable[..., WrittenEdit]) -> Callable[..., WrittenEdit]:
    """Return the edit that `write(project, source, statement, *arguments)` makes."""
    return lambda place, *names: write(place.project, place.source, place.statement, *([names] if names else []))


def _tried(write: Callable[[EditPlace], WrittenEdit], words: str, **about: Equivalence | bool | None) -> FindingEdit:
    return FindingEdit(write=write, words=lambda: words, needs_trial=True, **about)  # type: ignore[arg-type]


EDITS: Mapping[str, FindingEdit] = {
    "anomaly-detection-off": FindingEdit(write=lambda place: no_anomaly_detection(place.project)),
    "no-gradients": FindingEdit(
        write=_at_line(without_gradients), words=lambda: "torch.no_grad() around the validation"
    ),
    "remove-call": FindingEdit(write=_at_line(removed), words=lambda *names: f"{' or '.join(names)} left out"),
    "detach": FindingEdit(write=_at_line(detached), words=lambda: "kept without its graph"),
    "one-backward": _tried(in_one_pass, "one backward pass for several losses", equivalence=_ROUNDING),
    "detach-argument": _tried(with_detached_arguments, "the other network's output detached"),
    "needed-inputs": _tried(with_needed_inputs, "gradients of what the optimizer holds alone"),
    "no-graph": _tried(without_graph, "torch.no_grad() around what is not trained", weakest=_ROUNDING),
    "sparse-gradients": _tried(with_sparse_gradients, "sparse=True for the table", equivalence=_ROUNDING),
    "sums": _tried(by_sums, "the reduction by sums", equivalence=_ROUNDING),
    "maximum": _tried(by_maximum, "the indices of max() or min()"),
    "rows": _tried(by_rows, "rows by index_select", equivalence=_ROUNDING),
    "unbind": _tried(cut_once, "the tensor cut once", equivalence=_ROUNDING),
    "distances": _tried(without_differences, "distances without all differences", equivalence=_ROUNDING),
    "foreach": _tried(with_foreach, "torch._foreach_ operations for the loop", weakest=_ROUNDING),
    "product-order": _tried(from_the_right, "the product from the right", equivalence=_ROUNDING),
    "builtin-sum": _tried(as_one_operation, "tensors added up as a whole", weakest=_ROUNDING),
    "log-level": _tried(behind_level, "messages made only where the log takes them"),
    "one-array": _tried(in_one_array, "one array before the tensor"),
    "pad-sequence": _tried(padded_at_once, "pad_sequence for the loop"),
    "element-writes": _tried(by_array, "elements of tensors read and written as plain numbers"),
    "state-copies": _tried(without_deepcopy, "state_dict() without a deep copy"),
    "list-lookups": _tried(by_dictionaries, "lookups in a list through a set or dictionary"),
    "collect": _tried(collected, "pieces collected in a list"),
    "not-recorded": _tried(without_recording, "torch.no_grad() around what trains nothing", weakest=_ROUNDING),
    "early-rows": _tried(rows_before_layer, "rows picked before the layer", equivalence=_ROUNDING),
    "copy-left-out": _tried(without_copy, "the copy left out", weakest=_ROUNDING),
    "broadcast": _tried(by_broadcast, "expand in place of a copy", weakest=_ROUNDING),
    "dynamic-shapes": _tried(with_dynamic_shapes, "dynamic=True for torch.compile", equivalence=_ROUNDING),
    "shorter-batches": _tried(cut_to_longest, "batches cut to their longest row", equivalence=_ROUNDING),
    "silent-hook": _tried(without_hooks, "the hook returns at once", on_request=True),
    "seldom-penalty": _tried(
        every_eighth_time, "the penalty every 8th time, times 8", equivalence=Equivalence.SEMANTIC, on_request=True
    ),
    "earlier-outputs": _tried(with_earlier_outputs, "the outputs of the first pass, detached"),
    "fused-attention": _tried(as_fused_attention, "scaled_dot_product_attention", equivalence=_ROUNDING),
    "seldom-work": _tried(into_branch, "work done only where the branch that uses it is taken"),
    "read-later": _tried(read_later, "values kept on the device and read together"),
}
"""How the statement that a finding names is changed, by the names in `Rule.edits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedEdit:
    """An edit that can be made for a finding, as `flatout tune` tries it."""

    finding: Finding
    edit: SourceEdit
    equivalence: Equivalence
    weakest: Equivalence | None
    on_request: bool = False


def edits_for_findings(project: Project, findings: Sequence[Finding], folders: Sequence[Path]) -> list[TriedEdit]:
    """Return for each finding the edits that can be made of its line, named as seen from `folders`.

    Every edit is one of the project as it is: each is tried by itself.
    """
    found: dict[str, TriedEdit] = {}
    for finding in findings:
        for edit, words, after in tried_edits(project, finding):
            texts = dict(_texts(project, after, folders))
            if texts:
                made = edit_of(f"{finding.code} {words}{_at(finding)}", texts)
                tried = TriedEdit(
                    finding=finding,
                    edit=made,
                    equivalence=edit.equivalence,
                    weakest=edit.weakest,
                    on_request=edit.on_request,
                )
                found.setdefault(made.diff, tried)
    return list(found.values())


def tried_edits(project: Project, finding: Finding) -> Iterator[tuple[FindingEdit, str, Project]]:
    """Yield what `flatout tune` tries for a finding: the edit, its name, and the project with it."""
    for edit, arguments in edits_for(finding.code):
        if edit.words is not None:
            done = _write(project, finding, project, edit, arguments)
            if done.changed:
                yield edit, edit.words(*arguments), done.project


def _at(finding: Finding) -> str:
    place = finding.location
    return f" ({PurePath(place.file).name}:{place.line})" if place is not None else ""


def edits_in_words(rule: Rule) -> list[str]:
    """Return what the edits do that `flatout tune` tries for findings of a rule, each with its class."""
    known = [(edit, arguments) for edit, arguments in edits_for(rule.code) if edit.words is not None]
    return [f"{edit.words(*arguments)} ({edit.held_to})" for edit, arguments in known if edit.words is not None]


def _texts(before: Project, after: Project, folders: Sequence[Path]) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Yield the files that differ, by their names; a file below none of `folders` has none."""
    for old, new in zip(before.sources, after.sources, strict=True):
        if old.code != new.code:
            folder = next(each.resolve() for each in folders if old.path.is_relative_to(each.resolve()))
            read_text(old.code)
            yield old.path.relative_to(folder).as_posix(), (old.code, new.code)


def edits_for(code: str) -> list[tuple[FindingEdit, tuple[str, ...]]]:
    """Return the edits that the rule with that code names, each with its arguments."""
    rule = rule_of(code)
    return [(EDITS[name], tuple(arguments)) for name, *arguments in rule.edits] if rule is not None else []


def write_findings_in(
    project: Project, findings: Sequence[Finding], *, recorded: Project, done_by: Sequence[str] = ()
) -> tuple[Project, tuple[EditOutcome, ...]]:
    """Return the project with the findings' cures written in it as far as that is sure, and what became of each.

    `recorded`: the project as it was when the findings were made; `project` may be changed since. `done_by`: fixes
    that are written anyway; findings that they address are passed over. An edit that a trial has to confirm is not
    written: the reason says that `flatout tune` tries it.
    """
    outcomes = []
    for finding in findings:
        if not set(finding.fixes) & set(done_by):
            done = _cured(project, finding, recorded)
            project = done.project
            label = f"{finding.code} {finding.name}"
            outcomes.append(EditOutcome(label, done.changed, done.there, done.left, is_fix=False))
    return project, tuple(outcomes)


def _cured(project: Project, finding: Finding, recorded: Project) -> WrittenEdit:
    """Write the first edit of a finding that can be made and needs no trial."""
    edits = edits_for(finding.code)
    if not edits or finding.location is None:
        tried = f" `flatout tune` tries {' and '.join(finding.fixes)}." if finding.fixes else ""
        return WrittenEdit(project, left=(finding.message + tried,))
    left: list[str] = []
    for edit, arguments in edits:
        done = _write(project, finding, recorded, edit, arguments)
        if edit.needs_trial and done.changed:
            words = edit.words(*arguments) if edit.words is not None else ""
            tune = f"`flatout tune --also {finding.code}`" if edit.on_request else "`flatout tune`"
            left.append(f"{tune} tries it ({words}, {edit.equivalence}); `flatout patch` writes what is kept")
        elif done.changed or done.there:
            return done
        else:
            left += [each for each in done.left if each not in left]
    return WrittenEdit(project, left=tuple(left))


def _write(
    project: Project, finding: Finding, recorded: Project, edit: FindingEdit, arguments: Sequence[str]
) -> WrittenEdit:
    place = finding.location
    at = next((at for at, each in enumerate(recorded.sources) if place and str(each.path) == place.file), None)
    if at is None or place is None:
        return WrittenEdit(project, left=(f"its place is in no file that flatout reads. {finding.message}",))
    source = project.sources[at]
    statement = _statement(source, line_now(recorded.sources[at].lines, source.lines, place.line))
    if statement is None:
        return WrittenEdit(project, left=(f"{source.shown}:{place.line} is not a statement, or has changed already",))
    try:
        return edit.write(EditPlace(project, source, statement, finding), *arguments)
    except (Unplaced, RecursionError):
        return WrittenEdit(project, left=(source.at(statement, "the change does not fit on this line"),))


def _statement(source: SourceFile, line: int) -> ast.stmt | None:
    """Return the innermost statement on a line."""
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt) and node.lineno <= line <= _end(node)]
    return max(found, key=lambda node: (node.lineno, -_end(node)), default=None)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
