"""Parameters that rest, on a group of one rank: all that ranks do with shares, without another rank."""

from types import SimpleNamespace

import pytest
import torch

from flatout.probe.core.seams import Seams
from flatout.ranks.account import RankAccount
from flatout.ranks.group import RankGroup
from flatout.ranks.local_rows import HERE
from flatout.ranks.sharded.sharding import Sharding


class Alone(RankGroup):
    """The only rank."""

    def __init__(self):
        super().__init__(None, 0, 1)
        self.exchanges = 0

    def _gather(self, own, found):
        self.exchanges += 1
        found.copy_(own)

    def _summed(self, flat):
        self.exchanges += 1


class Stopped(Exception):
    """The training would have ended."""


@pytest.fixture
def alone(tmp_path):
    """Return what is in place: the group, the values, the account, and what the seams were."""

    def stop(reason):
        raise Stopped(reason)

    seams, group, account = Seams(), Alone(), RankAccount(str(tmp_path), 0, 1)
    sharding = Sharding(group, group, account, stop)
    found = SimpleNamespace(group=group, values=sharding._values, account=account, sharding=sharding, Stopped=Stopped)
    found.fits = True  # False: optimizers that are made then are those of one process
    sharding.install(seams, lambda: found.fits)
    torch.manual_seed(0)
    yield found
    seams.undo()
    HERE.sharding = None
    HERE.rows, HERE.whole = None, False


@pytest.fixture
def net():
    """Return what makes equal models of two layers."""

    def make():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(32, 40), torch.nn.Tanh(), torch.nn.Linear(40, 32))

    return make
