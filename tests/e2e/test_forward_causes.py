"""Causes in the forward pass that only a deep run sees, in scripts of their own: found at their line, or not at all."""

import pytest

from flatout.analysis.breakdown import account
from flatout.rules.core.find import find

TABLES = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)

class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 4) for _ in range(40))
        self.layers = nn.ModuleList(nn.Linear(160, 160) for _ in range(12))
        self.out = nn.Linear(160, 1)

    def forward(self, rows):
        {forward}

model = Tables()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for rows in torch.utils.data.DataLoader(torch.randint(0, 50, (32, 64, 40)), batch_size=None):
        loss = model(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LOOKED_UP = """parts = []
        for number, table in enumerate(self.tables):  # HERE
            parts.append(table(rows[:, number]))
        return self.out(torch.cat(parts, 1))"""
STACKED = """x = self.tables[0](rows).flatten(1)
        for layer in self.layers:
            x = x + layer(x).relu()
        return self.out(x)"""

PIECES = """
import torch
from torch import nn
from torch.nn import functional
torch.manual_seed(0)
torch.set_num_threads(1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(32, 64), nn.Linear(64, {width})

    def forward(self, x, y):
        h = self.first(x)
        {forward}

class Samples(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randn(256, {rows}, 32)
    def __len__(self):
        return 256
    def __getitem__(self, index):
        return self.rows[index], index % 4

frozen = nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 32)).requires_grad_(False)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for x, y in torch.utils.data.DataLoader(Samples(), batch_size=16, shuffle=True):
        {before}
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def diagnosed(flatout, script):
    flatout.write(script)
    ended = flatout.diagnose("train.py", steps=40)
    assert ended.code == 0, ended.err
    return {found.code: found for found in find(ended.run, account(ended.run))}


def pieces(**given):
    script = PIECES
    filled = {"width": "4", "rows": "64", "forward": "return self.out(h).mean(1)", "before": "pass"}
    filled["loss"] = "functional.cross_entropy(model(x, y), y)"
    for name, text in (filled | given).items():
        script = script.replace(f"{{{name}}}", text)
    return script


def is_at(script, finding):
    return script.splitlines()[finding.location.line - 1].endswith("# HERE")


@pytest.mark.alone
@pytest.mark.full
def test_tables_walked_through_by_a_loop_are_found_at_the_loop(flatout):
    script = TABLES.replace("{forward}", LOOKED_UP)
    found = diagnosed(flatout, script)["CO004"]
    assert is_at(script, found)
    assert "40 turns do not depend on each other" in found.message
    assert "table(indices + offsets)" in found.message
    assert "CO004" not in diagnosed(flatout, TABLES.replace("{forward}", STACKED))


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.parametrize(
    ("code", "flawed", "sound"),
    [
        pytest.param(
            "CO032",
            {
                "forward": "return self.out(h.clone().clone().clone().clone().clone().relu()).mean(1)  # HERE",
                "rows": "256",
            },
            {"forward": "return self.out(h.relu()).mean(1)  # HERE", "rows": "256"},
            id="copies",
        ),
        pytest.param(
            "CO030",
            {"before": "x = frozen(x)  # HERE"},
            {"before": "x = frozen(x + torch.randn_like(x))  # HERE"},
            id="a frozen module",
        ),
        pytest.param(
            "CO031",
            {
                "width": "2000",
                "forward": "return self.out(h)  # HERE",
                "loss": "functional.cross_entropy(model(x, y)[:, -1], y)",
            },
            {"width": "2000", "forward": "return self.out(h[:, -1])  # HERE"},
            id="rows that are not read",
        ),
    ],
)
def test_work_that_is_done_in_vain_is_found_at_its_line(flatout, code, flawed, sound):
    script = pieces(**flawed)
    assert is_at(script, diagnosed(flatout, script)[code])
    assert code not in diagnosed(flatout, pieces(**sound))
