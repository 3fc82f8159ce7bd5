"""A step reads few rows of a large table, and makes the gradient and the update of all of them.

## What it measures

In two steps of the deep run, parameters of 1,000 rows and more that are only read by look-ups (`nn.Embedding`,
`nn.EmbeddingBag`, `table[rows]`): how many rows of the gradient are not zero, how long making it takes, and the table's
share of what the optimizers hold. It fires where at most a tenth of the rows is touched and the rest costs 10% of the
step, in the backward pass and in the optimizer together.

## Why it matters

A dense gradient has as many rows as the table: it is filled with zeros, added up, read by the optimizer and cleared,
and Adam updates moments and weights of rows that no sample of the batch has. The cost grows with the vocabulary, not
with the batch.

## What to do

`nn.Embedding(..., sparse=True)` (or `F.embedding(rows, table, sparse=True)`), with the table in an optimizer that takes
sparse gradients: `torch.optim.SparseAdam`, `Adagrad`, or `SGD`. SGD without momentum and weight decay, and Adagrad,
give the same results. SparseAdam does not give those of Adam: the moments of rows that are not read stand still in
place of decaying, and there is no weight decay. Compare the quality of the model once. `flatout tune` tries
`sparse=True` under SGD and Adagrad alone, without momentum, decay and clipping.

## When it is wrong

Where gradients are clipped by their norm, or exchanged between ranks, look whether that takes sparse ones. Weights that
are also used in a product (tied output layers) have dense gradients anyway, and are not counted.
"""

from collections.abc import Sequence

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.backward_time import share_of_nodes, timed_nodes
from flatout.rules.source.made_at import made_at
from flatout.schema.backward import BackwardFacts, DenseTable
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run
from flatout.units import format_share

MIN_SHARE = 0.10
MOST_TOUCHED = 0.1
SPARSE_COST = 4.0  # a row that is updated by itself, as against one of a whole table

_SAME = ("SGD", "Adagrad")


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO027: a tenth of the step goes to rows of tables that it does not read."""
    found = timed_nodes(run)
    tables = [each for each in (found.tables if found else ()) if each.touched <= MOST_TOUCHED * each.rows]
    if found is None or not tables:
        return None
    worst = max(tables, key=lambda each: sum(_gone(found, breakdown, each)))
    parts = [_gone(found, breakdown, each) for each in tables]
    backward, optimizer = sum(part[0] for part in parts), sum(part[1] for part in parts)
    if backward + optimizer < MIN_SHARE:
        return None
    return Finding(
        code="CO027",
        name="dense-embedding-gradient",
        phase=Phase.BACKWARD if backward >= optimizer else Phase.OPTIMIZER,
        share=backward + optimizer,
        max_speedup=speedup_without(backward + optimizer),
        location=_made(worst) or worst.place,
        message=f"{of_step(breakdown, (backward + optimizer) * breakdown.mean_ms)} goes to rows of "
        f"{_tables(len(tables))} that the step does not read: {format_share(backward)} to their gradients, "
        f"{format_share(optimizer)} to their update. A step reads {worst.touched} of {worst.rows} rows"
        f"{f' in {at(worst.place)}' if worst.place else ''}{_of(worst)}. {_cure(worst)}",
        evidence=(
            Evidence("rows", worst.rows, ""),
            Evidence("rows a step reads", worst.touched, ""),
            Evidence("making the gradient", worst.seconds * 1000, "ms"),
            Evidence("share of the optimizer's elements", worst.of_optimizer, ""),
        ),
        fixes=(),
        arguments=(
            Argument("shape", (worst.rows, worst.columns)),
            Argument("rows_read", worst.touched),
            Argument("optimizer", worst.optimizer),
            Argument("lines_of_other_tables", _lines_of_others(worst, tables)),
        ),
    )


def _made(table: DenseTable) -> Frame | None:
    """Return the line that makes the table, as that is the one to change."""
    return made_at(table.place, "Embedding") if table.place is not None else None


def _lines_of_others(worst: DenseTable, tables: Sequence[DenseTable]) -> tuple[int, ...]:
    """Return the lines of the same file that make the other tables of the same kind of optimizer."""
    at = _made(worst) or worst.place
    others = [_made(each) or each.place for each in tables if each.optimizer == worst.optimizer]
    lines = {each.line for each in others if each is not None and at is not None and each.file == at.file}
    return tuple(sorted(lines - {at.line if at is not None else 0}))


def _gone(found: BackwardFacts, breakdown: Breakdown, table: DenseTable) -> tuple[float, float]:
    """Return the shares of the step that go in the backward pass and in the optimizer."""
    kept = min(1.0, SPARSE_COST * table.touched / table.rows)
    optimizer = breakdown.share(Phase.OPTIMIZER) * table.of_optimizer * (1 - kept)
    return share_of_nodes(found, breakdown, table.seconds) * (1 - kept), optimizer


def _of(table: DenseTable) -> str:
    made = _made(table)
    return f", of the table made at line {made.line}" if made else ""


def _tables(number: int) -> str:
    return "a table" if number == 1 else f"{number} tables"


def _cure(worst: DenseTable) -> str:
    look_up = "sparse=True" if worst.node.startswith("Embedding") else "`F.embedding(rows, table, sparse=True)`"
    if worst.optimizer in _SAME:
        return f"Use {look_up}: {worst.optimizer} takes sparse gradients, without momentum with equal results."
    return (
        f"Use {look_up} and torch.optim.SparseAdam for it; its results differ from those of "
        f"{worst.optimizer or 'Adam'}, because moments of rows that are not read stand still: compare the quality once."
    )


def _with(touched: int = 200, seconds: float = 0.01, of_optimizer: float = 0.9, rows: int = 40_000) -> Causes:
    table = DenseTable(
        place=Frame("model.py", 12, "Net.forward"),
        node="EmbeddingBackward0",
        rows=rows,
        columns=64,
        touched=touched,
        seconds=seconds,
        of_optimizer=of_optimizer,
        optimizer="Adam",
    )
    return Causes(num_steps=60, backward=BackwardFacts(steps=2, seconds=0.02, tables=(table,)))


RULE = Rule(
    code="CO027",
    name="dense-embedding-gradient",
    check=check,
    edits=(("sparse-gradients",),),
    subsumes=("slow-backward-form",),
    fires_on=(
        example(step_ms=60, forward=10, backward=20, optimizer=25, causes=_with()),
        example(step_ms=60, forward=10, backward=20, optimizer=25, causes=_with(of_optimizer=0.0)),
        example(step_ms=60, forward=10, backward=20, optimizer=25, causes=_with(seconds=0.0)),
    ),
    quiet_on=(
        example(step_ms=60, forward=10, backward=20, optimizer=25, causes=_with(touched=5_000)),
        example(step_ms=60, forward=10, backward=20, optimizer=25, causes=_with(seconds=0.001, of_optimizer=0.1)),
        example(step_ms=60, forward=10, backward=20, optimizer=25, causes=Causes(num_steps=60)),
    ),
)
