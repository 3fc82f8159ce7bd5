"""Scripts of one process, diagnosed and tuned on two ranks.

Modules: flatout.engine.tune_ranks and flatout.engine.ranked_target.
"""

import json

import pytest

from tests.e2e.support import why_no_private_world

pytestmark = pytest.mark.skipif(bool(why_no_private_world()), reason=str(why_no_private_world()))

NET = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
x, y = torch.randn(6000, 12), torch.randint(0, 3, (6000,))
data = torch.utils.data.TensorDataset(x, y)
for epoch in range(200):
    for a, b in torch.utils.data.DataLoader(data, batch_size=50, shuffle=True):
        loss = nn.functional.cross_entropy(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(epoch, loss.item(), file=open("log.txt", "a"))
"""

OWN_WAY = """
import os
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
scale = 2.0 if "RANK" in os.environ else 1.0
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(100_000):
    loss = (scale * model(torch.randn(32, 8))).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_a_diagnosis_sees_every_rank_and_offers_no_fix(flatout):
    flatout.write(NET)
    ended = flatout("diagnose", "--nproc-per-node", "2", "--budget", "60", "--json", "report.json", "train.py")
    assert ended.code == 0, ended.err
    report = json.loads((flatout.folder / "report.json").read_text())
    said = " ".join(ended.out.split())
    assert "Ranks: 2; rank" in said, said
    assert "by rows (25 + 25 of 50 in the first)" in said
    assert all(not found["fixes"] for found in report["findings"])
    assert not (flatout.folder / "log.txt").exists()
    assert flatout.left_behind() == []


@pytest.mark.slow
def test_a_tune_proves_ranks_equal_and_keeps_them_where_they_are_faster(flatout):
    flatout.write(NET)
    ended = flatout("tune", "--nproc-per-node", "2", "--budget", "90", "--json", "report.json", "train.py")
    assert ended.code == 0, ended.err
    (trial,) = json.loads((flatout.folder / "report.json").read_text())["trials"]
    assert trial["results_equal"] is True, trial
    checks = {each["name"]: each for each in trial["checks"]}
    assert int(checks["optimizer steps"]["detail"].split()[0]) >= 50
    assert "gradients of step 3" in checks and "module inputs" in checks
    assert (trial["verdict"] == "KEPT") == (flatout.folder / "flatout.toml").exists()
    assert flatout.left_behind() == []


@pytest.mark.slow
def test_a_script_that_does_another_thing_on_ranks_is_not_equal(flatout):
    flatout.write(OWN_WAY)
    ended = flatout("tune", "--nproc-per-node", "2", "--budget", "60", "--json", "report.json", "train.py")
    assert ended.code == 0, ended.err
    (trial,) = json.loads((flatout.folder / "report.json").read_text())["trials"]
    assert trial["verdict"] == "RESULTS_DIFFER", trial
    assert not (flatout.folder / "flatout.toml").exists()
