"""CO027 names the table that costs most, and the lines that make the others."""

from dataclasses import replace

from flatout.rules import co027_dense_embedding_gradient as co027
from flatout.rules.core.example import example
from flatout.schema.run import Frame


def found(*tables):
    causes = co027._with()
    (table,) = causes.backward.tables
    made = tuple(replace(table, **changes) for changes in tables)
    causes = replace(causes, backward=replace(causes.backward, tables=made))
    given = example(step_ms=60, forward=10, backward=20, optimizer=25, causes=causes)
    return co027.check(given.run, given.breakdown, ())


def test_lines_of_other_tables_are_those_of_the_same_file_and_optimizer():
    finding = found(
        {"seconds": 0.012},
        {"place": Frame("model.py", 20, "Net.forward")},
        {"place": Frame("other.py", 30, "Other.forward")},
        {"place": Frame("model.py", 40, "Net.forward"), "optimizer": "SparseAdam"},
    )
    assert finding.location.line == 12
    assert finding.argument("lines_of_other_tables") == (20,)


def test_one_table_has_no_others():
    assert found({}).argument("lines_of_other_tables") == ()
