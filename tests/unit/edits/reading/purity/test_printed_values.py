"""Values that are printed as they are, here or where their function is called."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.printed_values import is_printed


def printed(folder, text):
    project = project_of(folder, train=text)
    node = next(each for each in ast.walk(project.script.tree) if ast.unparse(each) == "h[r]")
    return is_printed(project, project.script, node)


FORWARD = "class Net:\n    def forward(self, h, r):\n        {}\nnet = Net()\n"


@pytest.mark.parametrize(
    "text",
    [
        "print(h[r])",
        "print('h', (1, h[r]))",
        "a = h[r]\nprint(a)",
        "a = h[r]\nlog.info(f'{a}')",
        "a = h[r]\nb = 'it is %s' % a",
        "def f(h, r):\n    return h[r]\nprint(f(x, y))",
        "def f(h, r):\n    a = h[r]\n    return 1, a\nz = f(x, y)\nprint(z)",
        FORWARD.format("return h[r]") + "print(net(x, y))",
        FORWARD.format("return h[r]") + "out = net(x, y)\nprint('out', out)",
    ],
)
def test_what_is_printed(tmp_path, text):
    assert printed(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "print(h[r] + 1)",
        "print(h[r].sum())",
        "a = h[r]\nprint(a.shape, a.mean().item())",
        "def f(h, r):\n    return h[r].mean()\nprint(f(x, y))",
        "def f(h, r):\n    return h[r]\nprint(g(x, y), f(x, y).sum())",
        FORWARD.format("return h[r]") + "print(len(x), loss)\nout = net(x, y)\nprint(out.shape)",
        FORWARD.format("a = h[r]\n        return a * 2") + "print(net(x, y))",
    ],
)
def test_what_is_not(tmp_path, text):
    assert not printed(tmp_path, text)
