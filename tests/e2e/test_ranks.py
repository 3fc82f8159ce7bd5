"""Two ranks of torchrun, one of them different: which one holds up the other, in which phase, at which line."""

import pytest

from flatout.analysis.breakdown import account
from flatout.rules.core.find import find
from tests.e2e.support import training

RANKS = """
import torch.distributed as dist
if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""

SLOW_DISK = """
class Data(Data):
    def __getitem__(self, index):
        if dist.get_rank() == 1:
            time.sleep(0.002)  # DISK
        return super().__getitem__(index)
"""

LONGER_BATCHES = """
class Slow(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.001 * len(x))  # WORK
        return super().forward(x)

if __name__ == "__main__":
    model = torch.nn.parallel.DistributedDataParallel(Slow(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    make = DataLoader
    DataLoader = lambda data, batch_size, **kwargs: make(data, batch_size * (1 + dist.get_rank()), **kwargs)
"""


SAME = "DI007"  # the samples of these scripts are not divided, for most of them

ACCUMULATING = """
import contextlib
if __name__ == "__main__":
    apart = {apart}
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 500), torch.nn.ReLU(), torch.nn.Linear(500, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def step(x, y):
    global done
    for part in range(4):
        with model.no_sync() if apart and part < 3 else contextlib.nullcontext():
            loss = torch.nn.functional.mse_loss(model(x), y)  # CALLED
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    done += 1
    return loss
"""


def diagnosed(flatout, script):
    """What is found of two ranks of a script."""
    flatout.write(script)
    ended = flatout.diagnose("--", "torchrun", "--standalone", "--nproc-per-node", "2", "train.py", steps=40)
    assert ended.code == 0, ended.err
    return [each for each in find(ended.run, account(ended.run)) if each.code.startswith("DI")]


def distributed(flatout, script):
    return [each for each in diagnosed(flatout, script) if each.code != SAME]


def accumulating(*, apart):
    return training(before=RANKS).replace("def main():", ACCUMULATING.format(apart=apart) + "\n\ndef main():")


def straggler(flatout, script):
    (found,) = distributed(flatout, script)
    assert found.code == "DI001"
    assert found.message.startswith("Rank 1 holds up 1 other")
    return found, script.splitlines()[found.location.line - 1]


@pytest.mark.parametrize(
    ("before", "each_step", "phase", "mark"),
    [
        pytest.param("", "if dist.get_rank() == 1: time.sleep(0.01)  # HOST", "host", "# HOST", id="slowed"),
        pytest.param(SLOW_DISK, "", "input", "# DISK", id="slow disk"),
    ],
)
@pytest.mark.few(1)
def test_the_rank_that_is_slower_is_named_with_its_line(flatout, before, each_step, phase, mark):
    found, line = straggler(flatout, training(before=RANKS + before, each_step=each_step))
    assert found.phase == phase
    assert line.endswith(mark)


@pytest.mark.full
def test_the_rank_with_larger_batches_is_named_with_their_size(flatout):
    found, line = straggler(flatout, training(before=RANKS + LONGER_BATCHES))
    assert found.phase == "forward"
    assert line.endswith("# WORK")
    assert "its batches hold 16 samples, not 8" in found.message


@pytest.mark.full
def test_two_equal_ranks_hold_up_nobody(flatout):
    assert distributed(flatout, training(before=RANKS, step_s=0.02)) == []


@pytest.mark.full
def test_an_exchange_after_every_micro_batch_is_found_at_the_call_of_the_model(flatout):
    script = accumulating(apart=False)
    found = [each for each in distributed(flatout, script) if each.code == "DI004"]
    assert len(found) == 1
    assert "4.0 times in each step, 3.0 of them" in found[0].message
    assert script.splitlines()[found[0].location.line - 1].endswith("# CALLED")


@pytest.mark.full
def test_accumulation_without_exchanges_is_as_it_should_be(flatout):
    assert "DI004" not in {each.code for each in distributed(flatout, accumulating(apart=True))}


UNEVEN = """
import torch.distributed as dist
if __name__ == "__main__":
    dist.init_process_group("gloo")
    make, part = DataLoader, range(64 if dist.get_rank() else 32)
    DataLoader = lambda data, batch_size, **kwargs: make(torch.utils.data.Subset(data, part), batch_size, **kwargs)
"""


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.parametrize(("meeting", "codes"), [("dist.barrier()", ["DI006"]), ("", [])], ids=["meet", "go on"])
def test_ranks_that_wait_at_the_end_of_uneven_epochs_are_told_from_those_that_go_on(flatout, meeting, codes):
    found = distributed(flatout, training(before=UNEVEN, each_epoch=meeting, step_s=0.05))
    uneven = [each for each in found if each.code == "DI006"]
    assert [each.code for each in uneven] == codes
    assert all("Rank 1 has 8 batches in an epoch, and 2 ranks have 6.0 on average" in each.message for each in uneven)


SHARED = """
class Shared(torch.utils.data.DataLoader):
    def __init__(self, data, batch_size, **kwargs):
        sampler = torch.utils.data.DistributedSampler(data) if {divided} else None
        kwargs.pop("shuffle", None)
        super().__init__(data, batch_size, sampler=sampler, shuffle=None if sampler else True, **kwargs)

DataLoader = Shared
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(("divided", "codes"), [(False, [SAME]), (True, [])], ids=["same", "divided"])
def test_ranks_that_compute_the_same_batches_are_told(flatout, divided, codes):
    found = diagnosed(flatout, training(before=RANKS + SHARED.format(divided=divided)))
    assert [each.code for each in found if each.code == SAME] == codes
