"""Rows picked before the last linear layer: how it is written, that it comes to the same, and what is left."""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 50)
        self.deep = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 50))
        self.wide = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 50))
        self.loss = nn.CrossEntropyLoss(ignore_index=0)
        self.each = nn.CrossEntropyLoss(reduction="none")
    def forward(self, h, t, mask):
"""


def rows(folder, *lines):
    text = HEAD + "".join(f"        {line}\n" for line in lines)
    after, left = edited(folder, "early-rows", text)
    return [line.removeprefix(" " * 8) for line in after.removeprefix(HEAD).rstrip().split("\n")] if after else [], left


@pytest.mark.parametrize(
    ("lines", "instead"),
    [
        (["return self.head(h)[:, -1]  # <<"], ["return self.head(h[:, -1])"]),
        (["return self.deep(F.relu(h))[:, -1, :]  # <<"], ["return self.deep(F.relu(h)[:, -1, :])"]),
        (["return F.linear(h + 1, w, b)[mask]  # <<"], ["return F.linear((h + 1)[mask], w, b)"]),
        (["return self.head(h)[:, :4].mean(1)  # <<"], ["return self.head(h[:, :4]).mean(1)"]),
        (["out = self.head(h)  # <<", "return out[:, -1]"], ["out = self.head(h[:, -1])", "return out"]),
        (
            ["out = self.head(h)  # <<", "a = out[mask].sum()", "return a, out[mask]"],
            ["out = self.head(h[mask])", "a = out.sum()", "return a, out"],
        ),
    ],
)
def test_an_index_of_rows_goes_before_the_layer(tmp_path, lines, instead):
    assert rows(tmp_path, *lines) == (instead, "")


@pytest.mark.parametrize(
    ("loss", "ignored"),
    [
        ("F.cross_entropy(out.view(-1, 50), t.view(-1), ignore_index=0)", "0"),
        ("F.cross_entropy(out.reshape(-1, out.size(-1)), t.reshape(-1))", "-100"),
        ("F.cross_entropy(out.flatten(0, 1), t.flatten(), ignore_index=PAD, reduction='sum')", "PAD"),
        ("F.cross_entropy(out.transpose(1, 2), t, ignore_index=0, label_smoothing=0.1)", "0"),
        ("self.loss(out.permute(0, 2, 1), t)", "self.loss.ignore_index"),
    ],
)
def test_rows_of_ignored_targets_are_left_out(tmp_path, loss, ignored):
    after, left = rows(tmp_path, "out = self.head(h)  # <<", f"return {loss}")
    assert left == ""
    assert after[:3] == ["targets = t.reshape(-1)", f"counts = targets != {ignored}",
                         "out = self.head(h.reshape(-1, h.size(-1))[counts])"]  # fmt: skip
    assert after[3].startswith(f"return {loss.partition('(')[0]}(out, targets[counts]")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["return self.wide(h)[:, -1]  # <<"], "a single call of a linear layer is not found"),
        (["return self.other(h)[:, -1]  # <<"], "a single call of a linear layer"),
        (["return self.head(h)[..., 0]  # <<"], "may pick columns"),
        (["return self.head(h)[:, -1, 5]  # <<"], "may pick columns"),
        (["return self.head(h)  # <<"], "in no expression that this line shows"),
        (["out = self.head(h)  # <<", "return out[:, -1], out[:, 0]"], "read for more than rows"),
        (["out = self.head(h)  # <<", "return out[:, -1], out.mean()"], "read for more than rows"),
        (["out = self.head(h)  # <<", "mask = out.sum(-1) > 0", "return out[mask]"], "read for more than rows"),
        (["out = self.head(h)  # <<", "mask = f(h)", "return out[mask]"], "mask is bound or changed behind"),
        (["out = self.head(h)  # <<", "mask[0] = 1", "return out[mask]"], "mask is bound or changed behind"),
        (["out = self.head(h)  # <<", "return self.each(out.view(-1, 50), t.view(-1))"], "read for more than rows"),
        (
            ["out = self.head(h)  # <<", "t = t + 1", "return F.cross_entropy(out.view(-1, 50), t.view(-1))"],
            "t is bound",
        ),
        (["out = self.head(h)  # <<", "return F.cross_entropy(out.view(-1, 50), t[1:])"], "a target for each"),
        (["out = self.head(h)  # <<", "return F.cross_entropy(out.view(-1, 50), t.view(-1)), out"], "read for more"),
        (["out = self.head(f(h))  # <<", "return F.cross_entropy(out.view(-1, 50), t.view(-1))"], "has no name"),
        (["out = self.head(h)  # <<", "out = out * 2", "return out[:, -1]"], "bound at several places"),
    ],
)
def test_rows_that_others_may_read_are_left(tmp_path, lines, reason):
    after, left = rows(tmp_path, *lines)
    assert after == []
    assert reason in left


@pytest.mark.parametrize(
    "lines",
    [
        "return self.head(h)[:, -1].square().mean()  # <<",
        "out = self.head(h)  # <<\n        return F.cross_entropy(out.view(-1, 50), t.view(-1), ignore_index=0)",
        "out = self.head(h)  # <<\n        return self.loss(out.transpose(1, 2), t)",
    ],
)
def test_losses_and_gradients_are_nearly_the_same(tmp_path, lines):
    rest = """\
net, h, t = Net(), torch.randn(3, 5, 8, requires_grad=True), torch.randint(0, 4, (3, 5))
loss = net(h, t, None)
loss.backward()
found = [loss.detach(), h.grad, net.head.weight.grad]
"""
    text = f"{HEAD}        {lines}\n{rest}"
    after, left = edited(tmp_path, "early-rows", text)
    assert left == ""
    same_results(text, after, "found", exact=False)
