"""Causes in the backward pass, each in a script of its own, at the line that makes it, and not in its twin."""

import pytest

from tests.e2e.test_causes import diagnosed, named

TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
{setting}
while True:
    for x in torch.utils.data.DataLoader(torch.randn(512, 64), batch_size=16):
{step}
"""

PYTHON = """
class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()
    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        {backward}

model = nn.Linear(64, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
BY_HAND = """rows = []
        for g, v in zip(grad.flatten().tolist(), x.flatten().tolist()):  # HERE
            rows.append(g * (abs(v) < 1))  # HERE
        return torch.tensor(rows).view_as(x)  # HERE"""
HOOKED = """
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []

def look(grad):
    values = torch.svd(grad.flatten()[:4].sum() + torch.ones(96, 96))  # HERE
    {gives}

for parameter in model.parameters():
    parameter.register_hook(look)
"""
HEADS = """
trunk = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
heads = nn.ModuleList(nn.Linear(256, 1) for _ in range(6))
optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.1)
"""
TWO = """
maker, judge = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh()), nn.Linear(512, 1)
makes, judges = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (maker, judge))
"""
TABLE = """
words, head = nn.Embedding(60_000, 32{sparse}), nn.Linear(32, 2)
optimizer = torch.optim.SGD([*words.parameters(), *head.parameters()], lr=0.1)
"""
PENALTY = """
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def {name}(x):
    x = x.clone().requires_grad_()
    slope, = torch.autograd.grad(model(x).sum(), x, create_graph=True)  # HERE
    return slope.square().sum()
"""
CUT = """
model = nn.Linear(64, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

PLAIN = """
optimizer.zero_grad()
loss = {loss}
loss.backward()
optimizer.step()
"""

CASES = [
    pytest.param(
        "CO023",
        PYTHON.format(backward=BY_HAND),
        PYTHON.format(backward="return grad * (x.abs() < 1)"),
        PLAIN.format(loss="Sign.apply(model(x)).square().mean()"),
        None,
        id="Python in a Function",
    ),
    pytest.param(
        "CO024",
        HOOKED.format(gives="seen[:] = [values]"),
        HOOKED.format(gives="return grad * values[1].sum().sign()"),
        PLAIN.format(loss="model(x).square().mean()"),
        None,
        id="hooks that look",
    ),
    pytest.param(
        "CO025",
        HEADS,
        HEADS,
        "made = trunk(x)\nfor head in heads:\n    head(made).mean().backward(retain_graph=True)  # HERE\n"
        "optimizer.step()\noptimizer.zero_grad()",
        "made = trunk(x)\nsum(head(made).mean() for head in heads).backward()\noptimizer.step()\noptimizer.zero_grad()",
        id="a pass for each head",
    ),
    pytest.param(
        "CO026",
        TWO,
        TWO,
        "made = maker(x)\njudges.zero_grad()\njudge(made).mean().backward(retain_graph=True)  # HERE\njudges.step()\n"
        "makes.zero_grad()\nmade.mean().backward()\nmakes.step()",
        "made = maker(x)\njudges.zero_grad()\njudge(made.detach()).mean().backward()\njudges.step()\n"
        "makes.zero_grad()\nmade.mean().backward()\nmakes.step()",
        id="through another network",
    ),
    pytest.param(
        "CO027",
        TABLE.format(sparse=""),
        TABLE.format(sparse=", sparse=True"),
        PLAIN.format(loss="head(words((x * 1000).long().abs()).mean(1)).square().mean()  # HERE"),
        None,
        id="a table",
    ),
    pytest.param(
        "CO028",
        PENALTY.format(name="penalty"),
        PENALTY.format(name="forces"),
        PLAIN.format(loss="model(x).mean() + {name}(x)"),
        None,
        id="a penalty",
    ),
    pytest.param(
        "CO029",
        CUT,
        CUT,
        "made = model(x).repeat(8, 1)\n"
        + PLAIN.format(loss="sum(made[:, t].sin() for t in range(256)).square().mean()  # HERE"),
        "made = model(x).repeat(8, 1)\n" + PLAIN.format(loss="sum(t.sin() for t in made.unbind(1)).square().mean()"),
        id="parts cut out one by one",
    ),
]


def script_of(setting, step):
    name = "penalty" if "def penalty" in setting else "forces"
    lines = "\n".join(" " * 8 + line for line in step.replace("{name}", name).strip().splitlines())
    return TRAINING.replace("{setting}", setting).replace("{step}", lines)


@pytest.mark.alone
@pytest.mark.few(2)
@pytest.mark.parametrize(("code", "flawed", "sound", "step", "sound_step"), CASES)
def test_a_cause_in_the_backward_pass_is_found_at_its_line(flatout, code, flawed, sound, step, sound_step):
    script = script_of(flawed, step)
    found = named(flatout, script, code)
    assert script.splitlines()[found.location.line - 1].endswith("# HERE")
    assert code not in diagnosed(flatout, script_of(sound, sound_step or step))
