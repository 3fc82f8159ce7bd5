"""Whether a value may come to a backward pass, as far as names tell."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.gradient_flow import last_name, may_be_trained_on, named_in


def trained_on(folder, text, names=()):
    """Return what is said of the line that ends with `# HERE`."""
    project = project_of(folder, train=text)
    source = project.script
    line = next(number for number, each in enumerate(text.splitlines(), 1) if each.endswith("# HERE"))
    block = next(n for n in ast.walk(source.tree) if isinstance(n, ast.stmt) and n.lineno == line)
    return may_be_trained_on(project, source, block, names)


LOOP = "for x in loader:\n    loss = model(x)\n    {}\n    loss.backward()\n    {}\n"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("total = loss + 1  # HERE", "pass", False),
        ("loss = loss + 1  # HERE", "pass", True),
        ("extra = penalty(x)  # HERE\n    loss += extra", "pass", True),
        ("extra = penalty(x)  # HERE\n    other = extra", "pass", False),
        ("a = f(x)  # HERE\n    b = a\n    loss = loss + b", "pass", True),
        ("kept.append(f(x))  # HERE\n    loss = loss + sum(kept)", "pass", True),
        ("pass", "total += loss  # HERE", False),
        ("pass", "state = out(x)  # HERE", False),
        ("loss = loss + state", "state = out(x)  # HERE", True),  # in the next turn
        ("state = start()\n    loss = loss + state", "state = out(x)  # HERE", True),  # in doubt
        ("extra = f(x)  # HERE\n    extra = g(x)\n    loss = loss + extra", "pass", False),  # another one
        ("extra = f(x)  # HERE\n    if c:\n        extra = g(x)\n    loss = loss + extra", "pass", True),
        ("extra = f(x)  # HERE\n    for extra in y:\n        pass\n    loss = loss + extra", "pass", True),
        ("a, b = f(x)  # HERE\n    loss = loss * b", "pass", True),
        ("torch.autograd.grad(y, w)\n    y = f(x)  # HERE", "pass", True),
    ],
)
def test_a_name_that_comes_to_the_backward_pass(tmp_path, before, after, expected):
    assert trained_on(tmp_path, LOOP.format(before, after)) is expected


def test_other_names_of_it_count(tmp_path):
    text = LOOP.format("evaluate(x)  # HERE\n    loss = loss + evaluate", "pass")
    assert not trained_on(tmp_path, text)
    assert trained_on(tmp_path, text, {"evaluate"})


def test_what_an_object_keeps_is_looked_for_in_every_scope_that_trains(tmp_path):
    text = "class T:\n    def look(self):\n        self.{} = f()  # HERE\n"
    text += "    def step(self):\n        (self.loss + g()).backward()\n"
    assert trained_on(tmp_path, text.format("loss"))
    assert not trained_on(tmp_path, text.format("other"))


@pytest.mark.parametrize(
    ("text", "name"), [("a.b.c", "c"), ("c[0][1]", "c"), ("a.c[0]", "c"), ("c", "c"), ("f()", ""), ("1", "")]
)
def test_the_last_name_of_an_expression(text, name):
    assert last_name(ast.parse(text, mode="eval").body) == name


def test_all_names_in_a_node():
    assert named_in(ast.parse("a.b(c[d], e=f)")) == {"a", "b", "c", "d", "f"}
