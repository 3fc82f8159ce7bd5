"""The second call of a model on one batch, left out for the outputs of the first one.

Module: flatout.edits.reading.writes.still_models.
"""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
model = nn.Linear(6, 4)
"""
SEEN = {"changed": 0, "marked": 0}


def loop(folder, *lines, before="", **seen):
    """Edit the body of a training loop; return it, and why it was left."""
    head = f"{HEAD}{before}for x, y in loader:\n"
    text = head + "".join(f"    {line}\n" for line in lines)
    after, left = edited(folder, "earlier-outputs", text, **{**SEEN, **seen})
    return [line.removeprefix("    ") for line in after.removeprefix(head).rstrip().split("\n")] if after else [], left


TRAIN = ["opt.zero_grad()", "out = model(x)", "loss = F.cross_entropy(out, y)", "loss.backward()"]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("hits += (model(x).argmax(1) == y).sum()  # <<", "hits += (out.detach().argmax(1) == y).sum()"),
        ("pred = model(x)  # <<", "pred = out.detach().clone()"),
        ("print(F.softmax(model(x), 1).max().item())  # <<", "print(F.softmax(out.detach().clone(), 1).max().item())"),
        ("show(model(x).logits.argmax(1))  # <<", "show(out.logits.detach().argmax(1))"),
        ("print(model(x)[0].norm().item())  # <<", "print(out[0].detach().norm().item())"),
    ],
)
def test_a_second_call_becomes_the_first_ones_outputs(tmp_path, line, instead):
    after, left = loop(tmp_path, *TRAIN, line, "opt.step()", "n += (pred.argmax(1) == y).sum()")
    assert (after, left) == ([*TRAIN, instead, "opt.step()", "n += (pred.argmax(1) == y).sum()"], "")


def test_without_gradients_and_under_a_condition(tmp_path):
    more = ["if step % 10 == 0:", "    with torch.no_grad():", "        acc = (model(x).argmax(1) == y).sum()  # <<"]
    after, _ = loop(tmp_path, *TRAIN, *more)
    assert after[-1] == "        acc = (out.detach().argmax(1) == y).sum()"


@pytest.mark.parametrize(
    ("first", "instead"),
    [
        ("loss = F.cross_entropy(model(x), y)", ["outputs = model(x)", "loss = F.cross_entropy(outputs, y)"]),
        ("out = model(x).squeeze(-1)", ["outputs = model(x)", "out = outputs.squeeze(-1)"]),
        ("loss, out = model(x)", ["outputs = model(x)", "loss, out = outputs"]),
    ],
)
def test_outputs_without_a_name_get_one(tmp_path, first, instead):
    after, left = loop(tmp_path, first, "loss.backward()", "n += model(x)[1].argmax(1).sum()  # <<")
    assert (after, left) == ([*instead, "loss.backward()", "n += outputs[1].detach().argmax(1).sum()"], "")


def test_outputs_whose_name_is_bound_again_get_another(tmp_path):
    after, _ = loop(tmp_path, "out = model(x)", "out = out / 2", "n += model(x).argmax(1).sum()  # <<")
    assert after == ["outputs = model(x)", "out = outputs", "out = out / 2", "n += outputs.detach().argmax(1).sum()"]


SECOND = "acc = (model(x).argmax(1) == y).sum()  # <<"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([*TRAIN, "opt.step()", SECOND], "opt.step() between the two calls may change weights"),
        ([*TRAIN, "model.eval()", SECOND], "model.eval() between"),
        ([*TRAIN, "for p in ps:", "    p.data -= 1", SECOND], "p.data between"),
        ([*TRAIN, "clamp(model)", SECOND], "p.clamp_() between"),
        ([*TRAIN, "x = x + noise", SECOND], "x is bound anew"),
        ([*TRAIN, "x[0] = 0", SECOND], "x is bound anew or changed"),
        ([*TRAIN, "out.relu_()", SECOND], "out is bound anew or changed"),
        ([*TRAIN, "F.relu(out, inplace=True)", SECOND], "out is bound anew or changed"),
        ([*TRAIN, "cut(out)", SECOND], "cut() may change the outputs in place"),
        (["x = model(x)", SECOND], "x is bound anew"),
        (["if flag:", "    out = model(x)", SECOND], "no call of the model"),
        (["with torch.autocast('cpu'):", "    out = model(x)", SECOND], "no call of the model"),
        (["out = model(x)", "for i in range(3):", "    a = model(x)  # <<"], "no call of the model"),
        (["out = model(x, 1)", SECOND], "no call of the model"),
        (["loss = weight(y) * F.mse_loss(model(x), y)", SECOND], "weight() between the two calls"),
        (["out = model(x) if flag else y", SECOND], "calls something else before it, or"[:30]),
        (["out = model(x)", "refill()", SECOND], "refill() between the two calls"),
        (["out = model(x)", "raw[0] = 1", SECOND], "raw[0] between"),
        (["out = model(x)", "raw += noise", SECOND], "raw += noise between"),
        (["out = model(x)", "out.pop()", SECOND], "out.pop() between"),
        (["out = model(next(it))", "acc = model(next(it)).argmax(1)  # <<"], "is made anew for each call"),
        (["out = model(x)", "pred = model(x)  # <<", "show(len(pred))"], "may be no single tensor"),
        (["out = model(x)", "print(model(x).mean())  # <<"], "more than to read its numbers"),
        (["out = draw(3)", "acc = draw(3).argmax(1)  # <<"], "what draw is cannot be told"),
        (["out = torch.rand(3)", "acc = torch.rand(3).argmax()  # <<"], "what torch.rand is cannot be told"),
        (["out = model(x)", "again = model(x)  # <<", "again.sum().backward()"], "may come to a backward pass"),
        (["out = model(x)", "a, b = model(x)  # <<"], "more than one thing"),
        (["out = model(x)", "p.register_hook(f)", SECOND], "register_hook may see"),
        (["net.register_forward_hook(f)", "out = model(x)", SECOND], "a forward hook may see"),
    ],
)
def test_what_may_be_another_output_is_left(tmp_path, lines, reason):
    before = "def clamp(model):\n    for p in model.parameters():\n        p.clamp_(-1, 1)\ndef cut(o):\n    o[0] = 1\n"
    after, left = loop(tmp_path, *lines, before=before)
    assert after == []
    assert reason in left


@pytest.mark.parametrize("line", ["self.calls += 1", "self.seen.append(x)", "self.total.add_(x)", "self.last[0] = x"])
def test_a_module_that_counts_its_calls_is_left(tmp_path, line):
    before = f"class Net(nn.Module):\n    def forward(self, x):\n        {line}\n        return x\n"
    assert "tells one call from two" in loop(tmp_path, *TRAIN, SECOND, before=before)[1]


@pytest.mark.parametrize(
    "forward",
    [
        "print(x.shape)\n        return self.a(x)",
        "global calls\n        return self.a(x)",
        "buf = self.held\n        buf[0] += 1\n        return self.a(x)",
        "return F.dropout(self.a(x), self.p)",
        "return self.a(x) + torch.randn(3)",
        "return self.drop(self.a(x))",
        "return unknown(self.a(x))",
    ],
)
def test_a_model_that_may_draw_or_do_more_is_left(tmp_path, forward):
    before = f"""\
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.p, self.held = nn.Linear(4, 4), 0.0, [0]
    def forward(self, x):
        {forward}
net = Own()
"""
    if "self.drop" in forward:
        before = before.replace("[0]\n", "[0]\n        self.drop = nn.Dropout(0.0)\n")
    after, left = loop(tmp_path, "out = net(x)", "acc = net(x).argmax(1)  # <<", before=before)
    assert after == []
    assert "draw" in left


def test_a_function_of_the_user_s_may_take_a_tensor(tmp_path):
    before = "def score(out, y):\n    return (out.argmax(1) == y).sum().item()\ndef size(out):\n    return len(out)\n"
    lines = ["out = model(x)", "acc = score(model(x), y)  # <<"]
    assert loop(tmp_path, *lines, before=before)[0][1] == "acc = score(out.detach().clone(), y)"
    assert loop(tmp_path, "out = model(x)", "n = size(model(x))  # <<", before=before)[0] == []


def test_an_argument_that_runs_code_is_read_twice(tmp_path):
    before = "class Data:\n    @property\n    def row(self):\n        return draw()\ndata = Data()\n"
    lines = ["out = model(data.row)", "acc = model(data.row).argmax(1)  # <<"]
    assert "is made anew" in loop(tmp_path, *lines, before=before)[1]


def test_a_variable_that_the_model_reads_stays_the_same(tmp_path):
    before = """\
scale = 1.0
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 4)
    def forward(self, x):
        return self.a(x) * scale
net = Own()
"""
    lines = ["out = net(x)", "scale = scale / 2", "acc = net(x).argmax(1)  # <<"]
    assert "scale, which the model may read" in loop(tmp_path, *lines, before=before)[1]


def test_a_model_of_the_user_s_that_only_computes_is_understood(tmp_path):
    before = """\
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.head = nn.Linear(6, 4)
    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x)) + x
        return self.head(x.flatten(1))
net = Own()
"""
    after, left = loop(tmp_path, "out = net(x)", "acc = net(x).argmax(1)  # <<", before=before)
    assert (after, left) == (["out = net(x)", "acc = out.detach().argmax(1)"], "")


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({"changed": 3}, "the weights may have changed"),
        ({"changed": None}, "the weights may"),
        ({"marked": 1}, "draws"),
    ],
)
def test_what_was_seen_while_it_ran_may_speak_against_it(tmp_path, seen, reason):
    after, left = loop(tmp_path, *TRAIN, SECOND, **seen)
    assert after == []
    assert reason in left


def test_every_bit_of_weights_and_counts_is_the_same(tmp_path):
    text = f"""\
{HEAD}
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.Adam(model.parameters(), lr=0.05)
hits = torch.zeros(())
for _ in range(9):
    x, y = torch.randn(8, 6), torch.randint(0, 4, (8,))
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    with torch.no_grad():
        hits += (model(x).argmax(1) == y).sum()  # <<
    opt.step()
"""
    after, _ = edited(tmp_path, "earlier-outputs", text, **SEEN)
    assert after.count("model(x)") == 1
    same_results(text, after, "model", "hits")
