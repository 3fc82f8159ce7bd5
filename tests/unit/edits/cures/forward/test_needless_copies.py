"""Copies that nothing needs, left out; and copies that something may need, left.

Module: flatout.edits.reading.writes.unwritten_tensors.
"""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
    def forward(self, x, state):
"""
ASKED = "x if type(x) is torch.Tensor and x.is_contiguous() else x.clone()"


def copies(folder, kind, *lines, edit="copy-left-out", before="", after=""):
    """Edit the body of a forward; return it, and why it was left."""
    head = HEAD.replace("class Net", f"{before}class Net")
    text = head + "".join(f"        {line}\n" for line in lines) + after
    made, left = edited(folder, edit, text, kind=kind)
    body = made.removeprefix(head).removesuffix(after).rstrip().split("\n")
    return [line.removeprefix(" " * 8) for line in body] if made else [], left


@pytest.mark.parametrize(
    ("lines", "instead"),
    [
        (["y = x.clone()  # <<", "return self.fc(y) + x"], [f"y = {ASKED}", "return self.fc(y) + x"]),
        (["h = self.fc(torch.clone(x + 1))  # <<", "return h"], ["h = self.fc(x + 1)", "return h"]),
        (["return self.fc((x * 2).clone()).sum()  # <<"], ["return self.fc(x * 2).sum()"]),
        (["return F.relu(x.clone()) + 1  # <<"], [f"return F.relu({ASKED}) + 1"]),
        (["y = x.clone()  # <<", "return y.sum() + y.size(0)"], [f"y = {ASKED}", "return y.sum() + y.size(0)"]),
        (["return 2 * x.clone() - state  # <<"], [f"return 2 * ({ASKED}) - state"]),
    ],
)
def test_a_clone_that_nobody_writes_to_goes(tmp_path, lines, instead):
    assert copies(tmp_path, "clone", *lines) == (instead, "")


@pytest.mark.parametrize(
    "lines",
    [
        ["y = x.clone()  # <<", "y += 1", "return self.fc(y)"],
        ["y = x.clone()  # <<", "x.mul_(2)", "return self.fc(y)"],
        ["y = x.clone()  # <<", "z = y.view(-1)", "z[0] = 1", "return self.fc(y)"],
        ["y = x.clone()  # <<", "z = self.drop(y)", "return z + 1"],
        ["y = x.clone()  # <<", "return F.relu(y, inplace=True)"],
        ["y = x.clone()  # <<", "return y"],
        ["y = x.clone()  # <<", "return self.fc(x), y[0]"],
        ["y = x.clone()  # <<", "return {'y': y}"],
        ["y = x.clone()  # <<", "return 1, (2, y)"],
        ["y = x.clone()  # <<", "return Output(hidden=y)"],
        ["y = x.clone()  # <<", "return lambda: y.sum()"],
        ["y = x.clone()  # <<", "for row in y:", "    row.zero_()", "return y.sum()"],
        ["y = x.clone()  # <<", "pair = [y]", "return pair[0] + 1"],
        ["y = x.clone()  # <<", "remember(t=y)", "return y + 1"],
        ["y = x.clone()  # <<", "return y.view(-1).sum()"],
        ["y = x.clone()  # <<", "y.requires_grad = True", "return y.sum()"],
        ["y = x.clone()  # <<", "y.retain_grad()", "return y.sum()"],
        ["y = x.clone()  # <<", "return torch.autograd.grad((y * x).sum(), y)"],
        ["y = x.clone()  # <<", "return y + (y is x)"],
        ["y = x.clone()  # <<", "setattr(self, 'last', y)", "return y + 1"],
        ["y = x.clone()  # <<", "yield y.sum()"],
        ["y = x.clone()  # <<", "y = y + 1", "return y + 1"],
        ["return x.clone()  # <<"],
        ["return x.clone().add_(1)  # <<"],
        ["self.last = x.clone()  # <<", "return x + 1"],
        ["self.p = nn.Parameter(x.clone())  # <<", "return x + 1"],
        ["state.append(x.clone())  # <<", "return x + 1"],
        ["y = self.w.clone()  # <<", "return y + 1"],
        ["y = x[:, 1:].clone()  # <<", "return y + 1"],
        ["y = x.exp().clone()  # <<", "return y + 1"],
        ["y = x.clone()  # <<", "self.tick()", "return y + 1"],
        ["y = x.clone() + state.clone()  # <<", "return y"],
        ["y = x + 1  # <<", "return y"],
    ],
)
def test_a_clone_that_something_may_need_is_left(tmp_path, lines):
    after, left = copies(tmp_path, "clone", *lines)
    assert after == []
    assert left


@pytest.mark.parametrize(
    "elsewhere",
    [
        "net = Net()\nbuffer = torch.ones(3, 4)\nout = net(buffer, 0)\nbuffer.zero_()\nout.sum().backward()\n",
        "inputs[0] = 1\n",
        "inputs += 1\n",
        "torch.add(a, b, out=inputs)\n",
        "act = nn.ReLU(inplace=True)\n",
        "inputs.data = other\n",
        "print(out.grad_fn)\n",
        "net.register_forward_hook(see)\n",
        "print(net(data, bn.running_mean))\n",
        "class Own:\n    def __add__(self, other):\n        return self\n",
    ],
)
def test_a_project_that_writes_into_tensors_keeps_its_copies(tmp_path, elsewhere):
    after, left = copies(tmp_path, "clone", "y = x.clone()  # <<", "return self.fc(y)", after=elsewhere)
    assert after == []
    assert left


def test_weights_that_are_remembered_are_copied(tmp_path):
    text = "import torch\nnet = torch.nn.Linear(2, 2)\nbefore = net.weight.clone()  # <<\noptimizer.step()\n"
    after, left = edited(tmp_path, "copy-left-out", text, kind="clone")
    assert (after, bool(left)) == ("", True)


CAST = "x.to(torch.float32, copy=True) if type(x) is torch.Tensor and x.is_floating_point() else "


@pytest.mark.parametrize("cast", ["x.double().float()", "x.to(torch.float64).to(torch.float32)", "x.double().float()"])
def test_a_cast_that_is_cast_back_is_one_copy(tmp_path, cast):
    assert copies(tmp_path, "cast", f"y = {cast}  # <<", "return y") == ([f"y = {CAST}{cast}", "return y"], "")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_a_cast_that_goes_leaves_a_tensor_of_its_own(tmp_path, dtype):
    text = f"""\
import torch
def half(x):
    y = x.double().float()  # <<
    y.mul_(0.5)
    return y
x = torch.tensor([1, 0, 3, 16777217]).to(torch.{dtype})
found = [half(x), x]
"""
    after, left = edited(tmp_path, "copy-left-out", text, kind="cast")
    assert left == ""
    same_results(text, after, "found")


@pytest.mark.parametrize(
    "line",
    [
        "y = x.float()  # <<",
        "y = x.to(device)  # <<",
        "y = x.clone()  # <<",
        "y = x.double()  # <<",
        "y = x.double().sum().float()  # <<",
        "y = (x + 1).double().float()  # <<",
    ],
)
def test_other_casts_are_left(tmp_path, line):
    after, left = copies(tmp_path, "cast", line, "return y.float()")
    assert after == []
    assert "a single copy" in left or "what is cast" in left


def test_a_repeated_tensor_is_expanded_where_it_has_one_row(tmp_path):
    after, left = copies(
        tmp_path, "repeat", "y = x.unsqueeze(1).repeat(1, n, 1)  # <<", "return state - y", edit="broadcast"
    )
    assert left == ""
    assert after == [
        "single = x.unsqueeze(1)",
        "y = single.expand(-1, n, -1) if type(single) is torch.Tensor and single.dim() == 3 and single.is_contiguous() "
        "and single.size(1) == 1 and n >= 1 else single.repeat(1, n, 1)",
        "return state - y",
    ]


def test_what_is_repeated_may_be_worked_out_on_the_line(tmp_path):
    lines = ["y = self.fc(x)[:, None].repeat(1, 3, 1)  # <<", "return state - y"]
    after, left = copies(tmp_path, "repeat", *lines, edit="broadcast")
    assert (after[0], left) == ("single = self.fc(x)[:, None]", "")
    assert copies(tmp_path, "repeat", "return state - self.fc(x).repeat(3, 1)  # <<", edit="broadcast")[0] == []


def test_the_order_in_memory_is_that_of_the_left_one(tmp_path):
    lines = ["y = x[:, None].expand(-1, 5, -1).contiguous()  # <<", "return y * state + state * y"]
    after, _ = copies(tmp_path, "repeat", *lines, edit="broadcast")
    assert after == ["y = x[:, None].expand(-1, 5, -1)", "return (y * state).contiguous() + state * y"]


@pytest.mark.parametrize(
    "lines",
    [
        ["y = x.repeat(3)  # <<", "return y - state"],
        ["y = x.repeat(*sizes)  # <<", "return y - state"],
        ["y = x.contiguous()  # <<", "return y - state"],
        ["return x.repeat(3, 1)  # <<"],
        ["y = x.repeat(3, 1)  # <<", "return y.view(-1)"],
        ["y = x.repeat(3, 1)  # <<", "y[0] = 1", "return y - state"],
        ["y = x.repeat(3, 1)  # <<", "x += 1", "return y - state"],
        ["y = x.repeat(3, 1)  # <<", "return y @ state"],
        ["y = x.repeat(next(n), 1)  # <<", "return y - state"],
        ["y = x.repeat(3, 1).mul_(2)  # <<", "return y - state"],
    ],
)
def test_other_repeats_are_left(tmp_path, lines):
    after, left = copies(tmp_path, "repeat", *lines, edit="broadcast")
    assert after == []
    assert left


REPEATED = """\
import torch
import numpy as np
def scaled(x, n, other):
    y = x.repeat(n, 1)  # <<
    return y * other
found = []
for x, n in {given}:
    try:
        out = scaled(x, n, torch.arange(12.).view(4, 3).t())
        found += [torch.as_tensor(out), torch.tensor(out.strides if isinstance(out, np.ndarray) else out.stride())]
    except RuntimeError:
        found.append(torch.zeros(n + 3))
"""


@pytest.mark.parametrize(
    "given",
    [
        "[(torch.randn(1, 4), 3)]",
        "[(torch.randn(3, 4), 1), (torch.randn(1, 4), 3)]",
        "[(torch.randn(4), 3)]",
        "[(torch.randn(1, 1, 4), 3)]",
        "[(torch.randn(1, 4), -1), (torch.randn(1, 4), 0)]",
        "[(torch.randn(4, 1).t(), 3)]",
        "[(torch.randn(1, 8)[:, ::2], 3)]",
        "[(torch.ones(1, 4, dtype=torch.int64), 3)]",
    ],
)
def test_what_has_several_rows_is_repeated(tmp_path, given):
    text = REPEATED.format(given=given)
    text = text.replace("        found += [torch.as_tensor(out), ", "        found.extend([torch.as_tensor(out), ")
    text = text.replace("out.stride())]\n", "out.stride())])\n")
    after, left = edited(tmp_path, "broadcast", text, kind="repeat")
    assert left == ""
    same_results(text, after, "found")


def test_each_edit_is_of_its_own_kind(tmp_path):
    assert "no repeated tensor" in copies(tmp_path, "clone", "y = x[None].repeat(2, 1)  # <<", edit="broadcast")[1]
    assert "a single copy" in copies(tmp_path, "repeat", "y = x.clone()  # <<")[1]


def test_a_tensor_that_grows_is_joined_once(tmp_path):
    lines = ["y = torch.zeros(0, 4)", "for each in x:", "    y = torch.cat([y, each[None]])  # <<", "return y"]
    after, left = copies(tmp_path, "growing", *lines)
    assert left == ""
    assert after[-3:] == ["if len(y_pieces) > 1:", "    y = torch.cat(y_pieces)", "return y"]


@pytest.mark.parametrize(
    ("edit", "kind", "line", "use"),
    [
        ("copy-left-out", "clone", "y = x.clone()  # <<", "self.fc(y) * state"),
        ("copy-left-out", "cast", "y = x.double().float()  # <<", "self.fc(y) * state"),
        ("broadcast", "repeat", "y = x[:, None].repeat(1, 3, 1)  # <<", "y * self.fc(state)"),
    ],
)
def test_values_and_gradients_are_the_same(tmp_path, edit, kind, line, use):
    rest = """\
net, x = Net(), torch.randn(3, 4, requires_grad=True)
out = net(x, torch.randn(3, 4))
out.square().sum().backward()
found = [out.detach(), x.grad]
"""
    text = f"{HEAD}        {line}\n        return {use}\n{rest}"
    after, left = edited(tmp_path, edit, text, kind=kind)
    assert left == ""
    same_results(text, after, "found", exact=kind != "repeat")
