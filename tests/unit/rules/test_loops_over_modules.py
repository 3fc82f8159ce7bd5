"""Loops over tables, heads and experts: a fault where turns are many, short, and independent of each other."""

from dataclasses import replace

import pytest

from flatout.rules import Example, example, line
from flatout.rules.co004_python_in_forward import RULE
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LineOperations, OptimizerFacts, RepeatedLine

TABLES = """\
class Net:
    def forward(self, rows):
        for number, table in enumerate(self.tables):
            parts.append(table(rows[:, number]))
        return self.out(parts)
def train(loader):
    for rows in loader:
        out = model(rows)
"""
STEPS = TABLES.replace("number, table in enumerate(self.tables)", "_ in range(self.num_steps)").replace(
    "parts.append(table(rows[:, number]))", "rows = rows + dt * self.field(rows)"
)
LAYERS = TABLES.replace("parts.append(table(rows[:, number]))", "rows = table(rows)")


@pytest.fixture
def truth(tmp_path):
    """Return a function that makes a recording of a training in whose forward pass one loop takes 80%."""

    def make(text, *, turns=26, work_s=0.0, parameters=0, **given):
        path = tmp_path / "train.py"
        path.write_text(text)
        inside = (str(path), 4, "Net.forward")
        lines = [
            line(0.8, inside, (str(path), 8, "train"), phase=Phase.FORWARD, leaf="torch"),
            line(0.2, (str(path), 5, "Net.forward"), (str(path), 8, "train"), phase=Phase.FORWARD, leaf="torch"),
        ]
        counts = ((3, turns + 1), (4, turns))
        causes = Causes(
            lines=tuple(lines),
            num_steps=60,
            repeated_lines=tuple(RepeatedLine(place=Frame(str(path), at, "Net.forward"), count=n) for at, n in counts),
            line_operations=(
                LineOperations(
                    place=Frame(*inside),
                    count=52,
                    seconds=0.002 + work_s,
                    floor_s=0.002,
                    update_s=5e-6,
                    parameters=parameters,
                    kinds=("embedding", "select"),
                ),
            ),
        )
        made = example(step_ms=100, forward=40, backward=40, optimizer=20, **given)
        return Example(lambda: replace(made.run, causes=causes))

    return make


def found(made):
    return RULE.check(made.run, made.breakdown, made.headroom)


def test_tables_that_are_looked_up_one_by_one_are_found_at_the_loop(truth):
    finding = found(truth(TABLES))
    assert (finding.location.line, finding.location.function) == (3, "Net.forward")
    assert "26 turns do not depend on each other" in finding.message
    assert "Put the tables into one" in finding.message
    assert finding.max_speedup == pytest.approx(1 / (1 - 0.64 * 25 / 26), rel=0.01)


def test_what_the_operations_take_beside_their_calls_is_not_promised(truth):
    finding = found(truth(TABLES, work_s=0.016))  # half of the loop's 32 ms
    assert finding.max_speedup == pytest.approx(1 / (1 - 0.32 * 25 / 26), rel=0.01)


def test_the_optimizer_is_spared_its_time_for_each_parameter(truth):
    loop = OptimizerFacts(name="Adam", implementation="loop", num_tensors=30)
    finding = found(truth(TABLES, work_s=0.016, parameters=26, optimizers=(loop,)))
    saved = 0.32 * 25 / 26 + 26 * 5e-6 * 34 / 0.1 * 25 / 26
    assert finding.max_speedup == pytest.approx(1 / (1 - saved), rel=0.01)
    fused = replace(loop, implementation="fused")
    finding = found(truth(TABLES, work_s=0.016, parameters=26, optimizers=(fused,)))
    assert finding.max_speedup == pytest.approx(1 / (1 - 0.32 * 25 / 26), rel=0.01)


def test_of_many_small_steps_half_are_promised(truth):
    finding = found(truth(STEPS, turns=60))
    assert finding.location.line == 3
    assert "60 turns follow one another" in finding.message
    assert finding.max_speedup == pytest.approx(1 / (1 - 0.32), rel=0.01)
    assert found(truth(STEPS, turns=12)) is None


@pytest.mark.parametrize(
    ("text", "facts"),
    [(LAYERS, {}), (LAYERS, {"turns": 60}), (TABLES, {"turns": 5}), (TABLES, {"work_s": 0.03})],
    ids=["each turn takes what the one before made", "many layers", "few turns", "work that stays"],
)
def test_others_are_no_fault(truth, text, facts):
    assert found(truth(text, **facts)) is None
