"""Batches are computed on one thread or on all, whichever is measured to be faster; tried with a clock of our own."""

import pytest
import torch
from tests.torchvision_stub import torchvision
from tests.unit.pipeline.compared import compared
from tests.unit.pipeline.compile.test_random_chains import Pictures, chains

from flatout.pipeline.compile import intra_op_threads
from flatout.pipeline.compile.intra_op_threads import IntraOpThreads


class Machine:
    """A clock that a batch moves: by `one` on one thread, by `together` on several."""

    def __init__(self, one, together):
        self.one, self.together, self.now, self.used = one, together, 0.0, []

    def clock(self):
        return self.now

    def make(self):
        self.used.append(torch.get_num_threads())
        self.now += self.one if self.used[-1] == 1 else self.together
        return len(self.used)


def run(machine, number, chosen=None):
    chosen = chosen or IntraOpThreads(machine.clock)
    machine.used.clear()
    assert [chosen.run(machine.make) for _ in range(number)] == list(range(1, number + 1))
    assert torch.get_num_threads() == 2
    return chosen


def test_all_threads_are_taken_where_they_are_clearly_faster(two_threads):
    machine = Machine(50e-6, 30e-6)
    run(machine, 1000)
    assert machine.used[:8] == [1] * 8 and machine.used[8:24] == [1] * 8 + [2] * 8 and set(machine.used[24:]) == {2}


@pytest.mark.parametrize("together", [48e-6, 200e-6])
def test_one_thread_stays_and_the_others_are_tried_less_and_less(two_threads, together):
    machine = Machine(50e-6, together)
    run(machine, 10_000)
    trials = [place for place, threads in enumerate(machine.used) if threads == 2]
    assert len(trials) == 8 * 7  # 128, 256, ... batches apart
    assert machine.used.count(2) < 0.01 * len(machine.used)


def test_a_core_that_gets_busy_is_noticed(two_threads):
    machine = Machine(50e-6, 30e-6)
    chosen = run(machine, 100)
    machine.together = 150e-6
    run(machine, 200, chosen)
    assert machine.used.count(2) <= 3 * 16 + 8
    machine.together = 30e-6
    run(machine, 1000, chosen)
    assert machine.used[-1] == 2


def test_one_slow_batch_changes_nothing(two_threads):
    machine = Machine(50e-6, 30e-6)
    chosen = run(machine, 100)
    machine.now, usual = 0.0, machine.make

    def once():
        machine.now += 1.0
        return usual()

    chosen.run(once)
    run(machine, 200, chosen)
    assert set(machine.used) == {2}


def test_an_error_leaves_the_number_of_threads_as_it_was(two_threads):
    def fail():
        raise ValueError("no such sample")

    with pytest.raises(ValueError, match="no such sample"):
        IntraOpThreads().run(fail)
    assert torch.get_num_threads() == 2


def test_nothing_is_tried_where_torch_has_one_thread(two_threads):
    torch.set_num_threads(1)
    machine = Machine(1.0, 0.1)
    alone = IntraOpThreads(machine.clock)
    for _ in range(100):
        alone.run(machine.make)
    assert set(machine.used) == {1} and torch.get_num_threads() == 1


CHAINS = chains(torchvision.transforms)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.few(1)
@pytest.mark.slow
def test_batches_have_the_same_bits_on_all_threads(two_threads, monkeypatch, name):
    monkeypatch.setattr(intra_op_threads, "_CLEARLY", float("inf"))  # taken after the first trial, whatever it measured
    decided, usual = [], IntraOpThreads._decide
    monkeypatch.setattr(
        IntraOpThreads, "_decide", lambda each, together: (decided.append(together), usual(each, together))
    )
    transform = torchvision.transforms.Compose(CHAINS[name])
    compared(lambda: (Pictures(transform, ((150, 160),)), {"batch_size": 1}))
    assert decided[0]
