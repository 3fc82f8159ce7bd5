"""A script that trains one thing after another is measured at the later one."""

import pytest

from flatout.analysis.breakdown import account
from flatout.rules.core.find import find

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
rows, wanted = torch.randn(2048, 64), torch.randn(2048, 8)


def network(width, out):
    return nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, out))


class Run:
    def __init__(self, net, rate):
        self.net, self.optimizer = net, torch.optim.Adam(net.parameters(), rate)

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


guide = network(768, 8)
first = Run(guide, 1e-3)
for number in range(30):
    at = torch.randint(2048, (64,))
    first.update((guide(rows[at]) - wanted[at]).square().mean())

pupil = network(128, 8)
second = Run(pupil, 1e-3)
while True:
    at = torch.randint(2048, (64,))
    second.update((pupil(rows[at]) - {guide}).square().mean())
"""


@pytest.mark.parametrize(
    ("guide", "codes"), [("guide(rows[at])", {"CO022"}), ("guide(rows[at]).detach()", set())], ids=["graph", "detached"]
)
def test_the_later_training_is_the_one_that_is_measured(flatout, guide, codes):
    flatout.write(SCRIPT.replace("{guide}", guide))
    ended = flatout.diagnose("train.py", steps=40)
    assert ended.code == 0, ended.err
    assert 29 <= ended.run.first_step <= 31
    assert "train something else" in " ".join(ended.run.notes)
    assert [one.num_tensors for one in ended.run.optimizers] == [6]
    assert {found.code for found in find(ended.run, account(ended.run))} & {"CO022"} == codes
