"""Where a value comes from, followed without running."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.dataflow import Flow, pairs


def origins(folder, text, **files):
    """Return what may have made the argument of `use(...)`."""
    project = project_of(folder, train=text, **files)
    found = [
        ast.unparse(made)
        for source, call in project.nodes(ast.Call)
        if ast.unparse(call.func) == "use"
        for _, made in Flow(project).origins(source, call.args[0])
    ]
    return sorted(found)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("use(Net())", ["Net()"]),
        ("x = Net()\nuse(x)", ["Net()"]),
        ("x = Net()\ny = x\nuse(y.to(d).eval())", ["Net()"]),
        ("x = A() if c else B()\nuse(x)", ["A()", "B()"]),
        ("x = A()\nx = B()\nuse(x)", ["A()", "B()"]),
        ("x, y = A(), B()\nuse(y)", ["B()"]),
        ("for n, b in enumerate(tqdm(x)):\n    pass\nx = L()\nuse(enumerate(tqdm(x)))", ["L()"]),
        ("x = {'a': A(), 'b': B()}\nuse(x['b'])", ["B()"]),
        ("x = [A(), B()]\nuse(x[0])", ["A()"]),
        ("if (x := A()):\n    use(x)", ["A()"]),
        ("x: Net = A()\nuse(x)", ["A()"]),
        ("x = A()\ndef f():\n    use(x)", ["A()"]),
        ("x = A()\ndef f():\n    x = B()\n    use(x)", ["B()"]),
        ("def f(x):\n    use(x)\nf(A())\nf(x=B())", ["A()", "B()"]),
        ("def make():\n    return A()\nuse(make())", ["A()"]),
        ("def make():\n    return A(), B()\nx, y = make()\nuse(y)", ["B()"]),
        ("def each():\n    for b in x:\n        yield b\nx = L()\nuse(each())", ["L()"]),
        (
            "class T:\n  def __init__(self, net):\n    self.net = net\n  def f(self):\n    use(self.net)\nT(A())",
            ["A()"],
        ),
        ("class N:\n    def f(self):\n        use(self)\nnet = N()\nnet.f()", ["N()"]),
        ("a, b = acc.prepare(A(), B())\nuse(b)", ["B()"]),
        ("x = x\nuse(x)", []),
        ("use(unknown)", []),
        ("use(3)", []),
    ],
)
def test_a_value_is_followed_to_the_call_that_makes_it(tmp_path, text, made):
    assert origins(tmp_path, text) == made


def test_a_name_is_followed_into_the_module_that_binds_it(tmp_path):
    assert origins(tmp_path, "from rows import loader\nuse(loader)", rows="loader = L()") == ["L()"]
    assert origins(tmp_path, "import rows\nuse(rows.make())", rows="def make():\n    return L()") == ["L()"]


def test_functions_of_torch_are_not_the_users_of_the_same_name(tmp_path):
    text = "import torch\ndef compile(x):\n    return A()\nuse(torch.compile(B()))"
    assert origins(tmp_path, text) == ["torch.compile(B())"]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("a = b = 1", [("a", "1"), ("b", "1")]),
        ("a, (b, c) = 1, (2, 3)", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a, b = f()", [("a", "f()[0]"), ("b", "f()[1]")]),
        ("a: int", []),
        ("a += 1", []),
    ],
)
def test_what_a_statement_binds(text, bound):
    found = pairs(ast.parse(text).body[0])
    assert [(ast.unparse(target), ast.unparse(value)) for target, value in found] == bound
