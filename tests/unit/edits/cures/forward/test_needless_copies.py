"""Copies that nothing needs, left out; and copies that something may need, left."""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
def fill(t):
    t[0] = 0
def total(t):
    return t.sum()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
    def forward(self, x, state):
"""


def copies(folder, kind, *lines, edit="copy-left-out"):
    text = HEAD + "".join(f"        {line}\n" for line in lines)
    after, left = edited(folder, edit, text, kind=kind)
    return [line.removeprefix(" " * 8) for line in after.removeprefix(HEAD).rstrip().split("\n")] if after else [], left


@pytest.mark.parametrize(
    ("lines", "instead"),
    [
        (["y = x.clone()  # <<", "return self.fc(y) + x"], ["y = x", "return self.fc(y) + x"]),
        (["h = self.fc(torch.clone(x + 1))  # <<", "return h"], ["h = self.fc(x + 1)", "return h"]),
        (["return self.fc((x * 2).clone()).sum()  # <<"], ["return self.fc(x * 2).sum()"]),
        (
            ["y = x.clone()  # <<", "h = self.fc(y)", "h += 1", "return h"],
            ["y = x", "h = self.fc(y)", "h += 1", "return h"],
        ),
        (["y = x[:, 1:].clone()  # <<", "return total(y) + y.sum()"], ["y = x[:, 1:]", "return total(y) + y.sum()"]),
    ],
)
def test_a_clone_that_nobody_writes_to_goes(tmp_path, lines, instead):
    assert copies(tmp_path, "clone", *lines) == (instead, "")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["y = x.clone()  # <<", "y += 1", "return self.fc(y)"], "y may be written to"),
        (["y = x.clone()  # <<", "x.mul_(2)", "return self.fc(y)"], "x may be written to"),
        (["y = x.clone()  # <<", "z = y.view(-1)", "z[0] = 1", "return self.fc(y)"], "z may be written to"),
        (["y = x.clone()  # <<", "z = self.drop(y)", "z += 1", "return self.fc(y)"], "z may be written to"),
        (["y = x.clone()  # <<", "return self.relu(y) + x"], "self.relu works in place"),
        (["y = x.clone()  # <<", "return F.relu(y, inplace=True)"], "y may be written to"),
        (["y = x.clone()  # <<", "fill(y)", "return self.fc(y)"], "fill() may write into it"),
        (["y = x.clone()  # <<", "return y"], "is returned"),
        (["y = x.clone()  # <<", "return self.fc(x), y[0]"], "is returned"),
        (["return x.clone()  # <<"], "is returned or kept"),
        (["return x.clone().add_(1)  # <<"], "add_() writes into the copy"),
        (["self.last = x.clone()  # <<", "return x + 1"], "kept in something else"),
        (["y = x.clone()  # <<", "self.last = y", "return x + 1"], "keeps it"),
        (["state.append(x.clone())  # <<", "return x + 1"], "state.append() keeps it"),
        (["y = self.w.clone()  # <<", "self.w.add_(1)", "return y + 1"], "self.w may be written to"),
        (["y = x.clone() + state.clone()  # <<", "return y"], "a single copy"),
        (["y = x + 1  # <<", "return y"], "a single copy"),
    ],
)
def test_a_clone_that_something_may_need_is_left(tmp_path, lines, reason):
    after, left = copies(tmp_path, "clone", *lines)
    assert after == []
    assert reason in left


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("y = x.double().float()  # <<", "y = x.float()"),
        ("y = (x + 1).to(torch.float64)  # <<", "y = x + 1"),
        ("y = x.to(dtype=torch.double)  # <<", "y = x"),
    ],
)
def test_a_cast_that_is_cast_back_goes(tmp_path, line, instead):
    assert copies(tmp_path, "cast", line, "return y.float()") == ([instead, "return y.float()"], "")


@pytest.mark.parametrize("line", ["y = x.float()  # <<", "y = x.to(device)  # <<", "y = x.clone()  # <<"])
def test_other_casts_are_left(tmp_path, line):
    assert "a single copy" in copies(tmp_path, "cast", line, "return y")[1]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("y = x.unsqueeze(1).repeat(1, state.size(0), 1)  # <<", "y = x.unsqueeze(1).expand(-1, state.size(0), -1)"),
        ("y = (x + 1)[None].repeat((5, 1, 1))  # <<", "y = (x + 1)[None].expand(5, -1, -1)"),
        ("y = x[:, None].expand(-1, 5, -1).contiguous()  # <<", "y = x[:, None].expand(-1, 5, -1)"),
    ],
)
def test_a_repeated_tensor_is_expanded(tmp_path, line, instead):
    assert copies(tmp_path, "repeat", line, "return y - state", edit="broadcast") == ([instead, "return y - state"], "")


@pytest.mark.parametrize("line", ["y = x.repeat(3)  # <<", "y = x.repeat(*sizes)  # <<", "y = x.contiguous()  # <<"])
def test_other_repeats_are_left(tmp_path, line):
    assert "a single repeat()" in copies(tmp_path, "repeat", line, "return y", edit="broadcast")[1]


def test_each_edit_is_of_its_own_kind(tmp_path):
    assert "no repeated tensor" in copies(tmp_path, "clone", "y = x[None].repeat(2, 1)  # <<", edit="broadcast")[1]
    assert "a single copy" in copies(tmp_path, "repeat", "y = x.clone()  # <<")[1]


def test_a_tensor_that_grows_is_joined_once(tmp_path):
    lines = ["y = torch.zeros(0, 4)", "for each in x:", "    y = torch.cat([y, each[None]])  # <<", "return y"]
    after, left = copies(tmp_path, "growing", *lines)
    assert left == ""
    assert after[-3:] == ["if len(y_pieces) > 1:", "    y = torch.cat(y_pieces)", "return y"]


@pytest.mark.parametrize(
    ("edit", "kind", "line"),
    [
        ("copy-left-out", "clone", "y = x.clone()  # <<"),
        ("copy-left-out", "cast", "y = x.double().float()  # <<"),
        ("broadcast", "repeat", "y = x[:, None].repeat(1, 3, 1)  # <<"),
    ],
)
def test_values_and_gradients_are_the_same(tmp_path, edit, kind, line):
    rest = """\
net, x = Net(), torch.randn(3, 4, requires_grad=True)
out = net(x, torch.randn(3, 4))
out.square().sum().backward()
found = [out.detach(), x.grad]
"""
    text = f"{HEAD}        {line}\n        return self.fc(y) * state\n{rest}"
    after, left = edited(tmp_path, edit, text, kind=kind)
    assert left == ""
    same_results(text, after, "found", exact=kind != "repeat")
