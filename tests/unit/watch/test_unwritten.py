"""What a data set of flatout's own says it never writes to is not looked at."""

import torch

from flatout.watch.state_watch import StateWatch
from flatout.watch.unwritten import UnwrittenMemory


class Holder:
    def __init__(self, held):
        self.held = held

    def __getitem__(self, index):
        return self.held[index]


def test_nobody_looks_whether_it_changed():
    numbers, others = torch.zeros(10), torch.zeros(10)
    seen, unseen = Holder(numbers), Holder(UnwrittenMemory(others))
    watches = [StateWatch([("it", one)]) for one in (seen, unseen)]
    assert [watch.look_deep() for watch in watches] == ["", ""]
    numbers[3] = others[3] = 1
    assert [bool(watch.look_deep()) for watch in watches] == [True, False]
    unseen.held = UnwrittenMemory(torch.zeros(3))
    assert watches[1].look_deep()
