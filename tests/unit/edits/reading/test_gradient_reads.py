"""What touches gradients or weights, seen by names; hooks, and statements that leave a block."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.blocks import block_of, in_generator, is_plain, loads, stores
from flatout.edits.reading.gradient_reads import gradient_hook, leaves_block, touches_gradients
from flatout.edits.reading.optimizer_steps import owners, steps_after


def first(folder, line, more=""):
    project = project_of(folder, train=f"{line}\n{more}")
    return project, project.script.tree.body[0]


@pytest.mark.parametrize(
    "line",
    [
        "print(w.grad)",
        "w.data = x",
        "optimizer.step()",
        "w.mul_(2)",
        "clip_grad_norm_(p, 1)",
        "norm(w)",
        "net(x)",
        "a.b.f()",
    ],
)
def test_gradients_and_weights_are_touched(tmp_path, line):
    more = "def norm(w):\n    return inner(w)\ndef inner(w):\n    return w.grad\nclass A:\n"
    more += "    def forward(self, x):\n        self.w.copy_(x)\n    def f(self):\n        self.w.grad = None\n"
    project, statement = first(tmp_path, line, more)
    assert touches_gradients(project, [statement])


@pytest.mark.parametrize(
    "line", ["print(loss.item())", "loss = f(x) + 1", "with torch.no_grad(): m = a.mean()", "self.step = 3"]
)
def test_gradients_and_weights_are_left_alone(tmp_path, line):
    project, statement = first(tmp_path, line, "def f(x):\n    return f(x) + g(x)\ndef g(x):\n    return f(x)\n")
    assert touches_gradients(project, [statement]) == ""


def test_what_a_model_does_to_values_on_the_way_is_its_own_matter(tmp_path):
    more = "class A:\n    def forward(self, x):\n        x.relu_()\n        return self.w.norm()\n"
    project, statement = first(tmp_path, "y = net(x)", more)
    assert touches_gradients(project, [statement]) == ""
    project, statement = first(tmp_path, "print(x.item())", more.replace("x.relu_", "self.w.mul_"))
    assert touches_gradients(project, [statement]) == ""


def test_leaving_and_hooks(tmp_path):
    project, statement = first(tmp_path, "for x in y:\n    if x: break", "w.register_hook(f)\n")
    assert leaves_block([statement])
    assert not leaves_block([project.script.tree.body[1]])
    assert gradient_hook(project) == "register_hook"
    assert gradient_hook(project_of(tmp_path, train="w.hook(f)\n")) == ""


def test_names_of_statements(tmp_path):
    project, statement = first(tmp_path, "for a, b.c in d(e):\n    f[g] = h.i\n    import j.k as l")
    assert stores([statement]) == {"a", "b", "c", "f", "l"}
    assert loads([statement]) == {"b", "d", "e", "f", "g", "h"}
    assert block_of(project.script, statement.body[1]) is statement.body
    assert is_plain(ast.parse("a.b.c", mode="eval").body)
    assert not is_plain(ast.parse("a().b", mode="eval").body)


STEPS = """\
import torch
one = torch.optim.SGD(net.parameters(), 0.1)
two = torch.optim.SGD([{"params": self.head.parameters()}], 0.1)
rate = torch.optim.lr_scheduler.StepLR(one, 3)
for x in data:
    if x:
        loss.backward()
    one.step()
    rate.step()
    two.step()
    other.backward()
    one.step()
"""


def test_optimizers_that_step_before_the_next_pass(tmp_path):
    project = project_of(tmp_path, train=STEPS)
    backward = next(n for n in ast.walk(project.script.tree) if isinstance(n, ast.Expr) and n.lineno == 7)
    steps = steps_after(project, project.script, backward)
    assert [ast.unparse(each) for each in steps] == ["one", "two"]
    assert owners(project, project.script, steps) == {"net", "head"}
    assert owners(project, project.script, [ast.parse("three", mode="eval").body]) == set()


def test_generators_read_names_whenever_they_are_walked():
    tree = ast.parse("a = (len(x) for _ in range(3))\nb = [y for _ in c]\nd = (e for f in z if f for g in w)")
    assert [in_generator(tree, name) for name in ("x", "y", "z", "w", "f")] == [True, False, False, True, True]
