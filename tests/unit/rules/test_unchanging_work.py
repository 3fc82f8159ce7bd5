"""Calls that return the same in every step: what of their line counts."""

import pytest

from flatout.rules import example, line
from flatout.rules.co019_unchanging_work import RULE
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, UnchangingCall


def finding(tmp_path, source):
    """Return what is found where the function takes 4% of the step, and its line as much again."""
    file = tmp_path / "grid.py"
    file.write_text(source)
    place = (str(file), 2, "forward")
    other = ("model.py", 3, "Net.forward")
    call = UnchangingCall(place=Frame(*place), function="touching", calls=3, steps=3, numbers=600)
    lines = (
        line(0.08, (str(file), 9, "touching"), place, other, phase=Phase.FORWARD),
        line(0.08, place, other, phase=Phase.FORWARD),
        line(0.84, other, phase=Phase.FORWARD),
    )
    causes = Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, lines=lines, unchanging_calls=(call,))
    made = example(step_ms=20, forward=10, backward=9, causes=causes)
    return RULE.check(made.run, made.breakdown, made.headroom)


@pytest.mark.parametrize("source", ["torch.tensor(touching(w)).t()", "np.array(self.grid.touching(w), dtype=int)"])
def test_what_makes_a_tensor_of_the_result_counts_with_the_call(tmp_path, source):
    found = finding(tmp_path, f"def forward(w):\n    pairs = {source}\n")
    assert found.share == pytest.approx(0.08)
    assert "3 times a step" in found.message
    assert found.location.line == 2


@pytest.mark.parametrize("source", ["touching(w)", "torch.tensor(w + touching(w))"])
def test_other_work_of_the_line_does_not(tmp_path, source):
    assert finding(tmp_path, f"def forward(w):\n    pairs = {source}\n") is None
