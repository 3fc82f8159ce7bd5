"""Which lines of a loop compute the same in each of its turns."""

import textwrap

import pytest

from flatout.rules.source.invariant_lines import is_invariant
from flatout.rules.source.loops import loops_around
from flatout.schema.run import Frame


def found(tmp_path, text, line):
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(text))
    around = next(loops_around(Frame(str(path), line, "f")))
    return is_invariant(around, line)


LAPLACE = """\
def f(u, x):
    total = 0
    for i in range(10):
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        total = total + torch.autograd.grad(du[:, i].sum(), x)[0][:, i]
"""


def test_a_gradient_that_no_turn_changes_is_one(tmp_path):
    assert found(tmp_path, LAPLACE, 4)
    assert not found(tmp_path, LAPLACE, 5)


@pytest.mark.parametrize(
    "line",
    [
        "w = torch.softmax(self.weight, 0)",
        "a, b = x.mean(0), np.linalg.norm(y)",
        "mask = torch.tril(torch.ones(n, n))",
        "z = (\n            x @ y.t()\n        ).sum()",
    ],
)
def test_new_values_of_what_stays_are(tmp_path, line):
    assert found(tmp_path, f"def f(x, y):\n    for t in range(9):\n        {line}\n        out.append(t)\n", 3)


@pytest.mark.parametrize(
    "line",
    [
        "h = torch.tanh(h)",  # reads what it writes
        "z = torch.exp(x[t])",  # the turn's own
        "z = torch.randn(4, 4)",
        "z = F.dropout(x, 0.1)",
        "z = self.net(x)",  # may draw
        "z = next(batches)",
        "z = torch.exp(state)",  # written below
        "z = x",  # nothing is computed
        "self.z = torch.exp(x)",
        "z += torch.exp(x)",
    ],
)
def test_others_are_not(tmp_path, line):
    assert not found(tmp_path, f"def f(x):\n    for t in range(9):\n        {line}\n        state = g(t)\n", 3)
