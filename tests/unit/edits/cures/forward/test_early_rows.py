"""Rows picked before the last linear layer: how it is written, that it comes to the same, and what is left."""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
class MyCrossEntropyLoss(nn.Module):
    def forward(self, out, t):
        return F.cross_entropy(out, t)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 50)
        self.deep = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 50))
        self.wide = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 50))
        self.loss = nn.CrossEntropyLoss(ignore_index=0)
        self.each = nn.CrossEntropyLoss(reduction="none")
        self.mine = MyCrossEntropyLoss()
    def forward(self, h, t, mask):
"""


def rows(folder, *lines):
    text = HEAD + "".join(f"        {line}\n" for line in lines)
    after, left = edited(folder, "early-rows", text)
    return [line.removeprefix(" " * 8) for line in after.removeprefix(HEAD).rstrip().split("\n")] if after else [], left


@pytest.mark.parametrize(
    ("lines", "begins", "ends"),
    [
        (
            ["return self.head(h)[:, -1]  # <<"],
            "return (lambda layer, x: layer(x[:, -1]) if type(layer) is torch.nn.Linear and not (",
            " and x.dim() > 2 and x.isfinite().all() else layer(x)[:, -1])(self.head, h)",
        ),
        (
            ["return self.deep(F.relu(h))[:, -1, :]  # <<"],
            "return (lambda layer, x: layer(x[:, -1, :]) if type(layer) is torch.nn.Sequential and not (",
            " and x.dim() > 3 and x.isfinite().all() else layer(x)[:, -1, :])(self.deep, F.relu(h))",
        ),
        (
            ["return F.linear(h + 1, w, b)[mask]  # <<"],
            "return (lambda x, weight, bias, rows: F.linear(x[rows], weight, bias) if type(x) in (",
            " and weight.dim() == 2 and x.isfinite().all() else F.linear(x, weight, bias)[rows])(h + 1, w, b, mask)",
        ),
        (
            ["return self.head(h)[:, :4].mean(1)  # <<"],
            "return (lambda",
            " else layer(x)[:, :4])(self.head, h).mean(1)",
        ),
        (["out = self.head(h)  # <<", "return out[:, -1]"], "out = (lambda", " else layer(x)[:, -1])(self.head, h)"),
        (
            ["out = self.head(h)  # <<", "a = out[mask].sum()", "return a, out[mask]"],
            "out = (lambda layer, x, rows: layer(x[rows]) if ",
            " else layer(x)[rows])(self.head, h, mask)",
        ),
    ],
)
def test_an_index_of_rows_goes_before_the_layer(tmp_path, lines, begins, ends):
    (first, *rest), left = rows(tmp_path, *lines)
    assert left == ""
    assert first.startswith(begins) and first.endswith(ends)
    assert rest == [line.replace("[mask]", "").replace("[:, -1]", "") for line in lines[1:]]


@pytest.mark.parametrize(
    ("loss", "ignored", "shapes"),
    [
        (
            "F.cross_entropy(out.view(-1, 50), t.view(-1), ignore_index=0)",
            "0",
            " and self.head.out_features == 50 and h.isfinite().all():",
        ),
        (
            "F.cross_entropy(out.reshape(-1, out.size(-1)), t.reshape(-1))",
            "-100",
            " * h.size(-1) == h.numel() > 0 and h.isfinite().all():",
        ),
        (
            "F.cross_entropy(out.flatten(0, 1), t.flatten(), ignore_index=PAD, reduction='sum')",
            "PAD",
            " h.dim() == 3 and h.isfinite().all():",
        ),
        (
            "F.cross_entropy(out.transpose(1, 2), t, ignore_index=0, label_smoothing=0.1)",
            "0",
            " and h.dim() == 3 and t.shape == h.shape[:2] and h.isfinite().all():",
        ),
        (
            "self.loss(out.permute(0, 2, 1), t)",
            "self.loss.ignore_index",
            " and t.shape == h.shape[:2] and h.isfinite().all():",
        ),
        ("F.cross_entropy(out, t)", "-100", " and h.dim() == 2 and t.shape == h.shape[:1] and h.isfinite().all():"),
    ],
)
def test_rows_of_ignored_targets_are_left_out(tmp_path, loss, ignored, shapes):
    after, left = rows(tmp_path, "out = self.head(h)  # <<", f"return {loss}")
    assert left == ""
    assert after[0] == "counts = None"
    assert after[1].startswith("if type(self.head) is torch.nn.Linear and not (") and after[1].endswith(shapes)
    assert after[2:4] == ["    targets = t.reshape(-1)", f"    counts = targets != {ignored}"]
    head = "self.head(h.reshape(-1, h.size(-1))[counts])"
    assert after[4] == f"out = (self.head(h) if counts is None else {head})"
    counted = f"{loss.partition('(')[0]}(out, targets[counts]"
    assert after[5].startswith(f"return ({loss} if counts is None else {counted}")


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
        (["out = self.head(h)  # <<", "t = f(t)", "return F.cross_entropy(out, t)"], "t is bound"),
        (["out = self.head(h)  # <<", "f(t)", "return F.cross_entropy(out, t)"], "f() may write to"),
        (["out = self.head(h)  # <<", "return F.cross_entropy(out.view(-1, f(t)), t.view(-1))"], "a target for each"),
        (["out = self.head(h)  # <<", "return self.mine(out, t)"], "read for more than rows"),
        (["out = self.head(h)  # <<", "out[mask] = 0", "return h"], "are written to"),
        (
            ["out = self.head(h)  # <<", "a = out[mask]", "a += 1", "return out[mask]"],
            "several times may be written to",
        ),
        (["out = self.head(h)  # <<", "self.mark(h)", "return out[self.mask]"], "may be others when"),
        (["out = self.head(h)  # <<", "if t is None: return h", "return out[mask]"], "not picked each time"),
        (["out = self.head(h)  # <<", "return out[mask] if t else h"], "not picked each time"),
        (["out = self.head(h)  # <<", "mark(mask)", "return out[mask]"], "mark() may write to"),
        (["Own.forward = f", "return self.head(h)[mask]  # <<"], "what layers do is set"),
        (["f = torch.compile(f, fullgraph=True)", "return self.head(h)[mask]  # <<"], "compiled whole"),
        (["print(self.head(h)[mask])  # <<"], "may be printed"),
        (["out = self.head(h)  # <<", "print(out[mask])"], "may be printed"),
        (["out = self.head(h)  # <<", "self.seen[:2] = False", "return out[mask]"], "may write to what"),
        (["out = self.head(h)  # <<", "other += 1", "return F.cross_entropy(out, t)"], "may write to what"),
        (["out = self.head(h)  # <<", "for k in t:", "    k.append(out[mask])"], "in a loop behind"),
        (["out = self.head(h)  # <<", "return lambda: out[mask]"], "bound at several places"),
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


OTHERS = {
    "fewer dimensions": ("return self.head(h)[:, -1]", "[net(h), net(h[0, :, :])]"),
    "masks of all numbers, tuples, slices, lists": (
        "return self.square(h)[mask]",
        "[net(h, m=m) for m in (h > 0, h[..., 0] > 0, (0, slice(None), 2), slice(1), [1], torch.tensor(1), 2, None)]",
    ),
    "a hook that looks": (
        "return self.head(h)[:, -1]",
        "[net.head.register_forward_hook(lambda m, i, o: seen.append(o.numel())) and net(h), torch.tensor(seen)]",
    ),
    "another layer, set from outside": (
        "return self.head(h)[:, -1]",
        "[setattr(net, 'head', nn.Softmax(1)), net(h)][1:]",
    ),
    "a forward of its own": (
        "return self.head(h)[:, -1]",
        "[vars(net.head).update(forward=lambda x: x * 2), net(h)][1:]",
    ),
    "a norm of two dimensions": ("return self.normed(h)[:, -1]", "[net(h)]"),
    "an activation in place": (
        "out = self.inplace(h)[:, -1]\n        return torch.cat([out.flatten(), h.flatten()])",
        "[net(h)]",
    ),
    "no targets": (
        "out = self.head(h)\n        loss = F.cross_entropy(out.view(-1, 50), t.view(-1), ignore_index=0) "
        "if t is not None else h.sum()\n        return loss",
        "[net(h, t), net(h)]",
    ),
    "targets that are shares": (
        "out = self.head(h)\n        return F.cross_entropy(out, t)",
        "[net(h[0], t[0]), net(h[0], torch.full((5, 50), 0.02)), net(torch.randn(3, 50, 8), torch.ones(3, 50).long())]",
    ),
    "several classes of one row": (
        "out = self.head(h)\n        return F.cross_entropy(out.view(-1, self.k), t.view(-1))",
        "[net(h, torch.randint(0, 25, (3, 10))), net(h, torch.randint(0, 25, (3, 5, 2)))]",
    ),
    "only ignored targets": (
        "out = self.head(h)\n        "
        "return F.cross_entropy(out.view(-1, 50), t.view(-1), ignore_index=0, reduction='sum')",
        "[net(h, 0 * t), net(h, t)]",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_layers_indices_and_targets_of_other_kinds_go_as_they_are_written(tmp_path, name):
    line, found = OTHERS[name]
    head = HEAD.replace(
        "        self.loss =",
        """\
        self.square, self.k = nn.Linear(8, 8), 25
        self.normed = nn.Sequential(nn.LayerNorm((5, 8)), nn.Linear(8, 3))
        self.inplace = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 3))
        self.loss =""",
    ).replace("h, t, mask", "h, t=None, m=None")
    first, *rest = line.replace("[mask]", "[m]").split("\n")
    text = (
        "\n".join([f"{head}        {first}  # <<", *rest])
        + f"""
seen = []
net, h, t = Net(), torch.randn(3, 5, 8), torch.randint(0, 4, (3, 5))
with torch.no_grad():
    found = {found}
"""
    )
    after, left = edited(tmp_path, "early-rows", text)
    assert left == ""
    same_results(text, after, "found", exact=False)


@pytest.mark.parametrize(
    "lines",
    [
        "return self.head(h)[:, -1].square().mean()  # <<",
        "out = self.head(h)  # <<\n        return F.cross_entropy(out.view(-1, 50), t.view(-1), ignore_index=0)",
    ],
)
def test_a_number_that_is_none_comes_to_the_gradients_from_any_row(tmp_path, lines):
    rest = """\
net, h = Net(), torch.randn(3, 5, 8)
h[0, 0, 0] = torch.nan
t = torch.randint(1, 4, (3, 5))
t[0, 0] = 0
net(h, t, None).backward()
found = [net.head.weight.grad.isnan().float()]
"""
    text = f"{HEAD}        {lines}\n{rest}"
    after, left = edited(tmp_path, "early-rows", text)
    assert left == ""
    same_results(text, after, "found")
