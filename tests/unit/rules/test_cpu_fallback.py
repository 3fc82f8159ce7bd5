"""What is told of operations that the device leaves to the CPU depends on what is below the lines that call them."""

import pytest

from flatout.rules import example, line
from flatout.rules.co021_cpu_fallback import RULE
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Fallback, Frame

BACKWARD = ("train.py", 40, "train")
SAID = Fallback(place=Frame(*BACKWARD), operation="aten::linalg_svd", device="MPS")


@pytest.mark.parametrize(("beside_s", "most"), [(0.0, 1.0), (1.0, 1 / 0.75)])
def test_below_a_line_that_a_whole_phase_is_below_no_gain_is_stated(beside_s, most):
    lines = [line(1.0, BACKWARD, phase=Phase.BACKWARD, leaf="torch")]
    lines += [line(beside_s, ("train.py", 41, "train"), phase=Phase.BACKWARD, leaf="torch")] if beside_s else []
    truth = example(
        step_ms=100, forward=50, backward=50, causes=Causes(lines=tuple(lines), fallbacks=(SAID,), num_steps=40)
    )
    found = RULE.check(truth.run, truth.breakdown, truth.headroom)
    assert found is not None
    assert found.phase == Phase.BACKWARD
    assert found.max_speedup == pytest.approx(most)
