"""Scripts that compile their model: what ends a graph and what is compiled again, and nothing that is not so."""

import pytest

from flatout.analysis.breakdown import account
from flatout.rules.core.find import find
from tests.e2e.support import training

MODEL = """
import numpy

class Net(torch.nn.Linear):
    def forward(self, x):
        ranks = torch.from_numpy(slow_digitize(x.detach().numpy(), [0.0, 0.5]))  # BREAK
        return super().forward(x) + ranks.float().mean(1, keepdim=True)

@torch.compiler.disable
def slow_digitize(values, edges):
    time.sleep(0.02)  # by far the dearest of a step on a loaded machine, too
    return numpy.digitize(values, edges)

model = Net(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model = torch.compile(model, backend="aot_eager")
"""

CHANGING = """
class Net(torch.nn.Linear):
    done = 0

    def forward(self, x):
        self.done += 0.25
        return super().forward(x) * (1 if self.done % 2 else 2)

model = Net(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model = torch.compile(model, backend="aot_eager", dynamic=False)
"""


def found(flatout, script):
    flatout.write(script)
    ended = flatout.diagnose("train.py", steps=60)
    assert ended.code == 0, ended.err
    return {each.code: each for each in find(ended.run, account(ended.run)) if not each.code.startswith("MS")}


@pytest.mark.full
def test_the_line_that_ends_a_graph_is_named_and_the_compiler_is_not_taken_for_anomaly_detection(flatout):
    script = training(before=MODEL)
    said = found(flatout, script)
    assert next(iter(said)) == "CO005"
    assert script.splitlines()[said["CO005"].location.line - 1].endswith("# BREAK")
    assert "CO003" not in said


@pytest.mark.full
def test_a_function_whose_attributes_change_is_said_to_be_compiled_again(flatout):
    said = found(flatout, training(before=CHANGING))
    assert said["CO006"].location.function == "forward"
    assert "after 8 it is left uncompiled" in said["CO006"].message
