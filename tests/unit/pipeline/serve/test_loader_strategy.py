"""What serves a loader until another takes its place: the two that leave its iterators to the script; and staleness.

Modules: flatout.pipeline.serve.staleness.
"""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.errors import ChangedTooLate
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.inspect.repeated_proof import ProofPace
from flatout.pipeline.serve.loader_strategy import KeptSamples, Passthrough
from flatout.pipeline.serve.pass_state import PassState
from flatout.pipeline.serve.served_loader import CachePolicy, ServedLoader
from flatout.pipeline.serve.staleness import Staleness


class Rows(Dataset):
    def __init__(self):
        self.scale = 1.0

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor([index * self.scale])


class Samples:
    """Stands for samples that are kept."""

    fresh = None
    against = ""

    def __init__(self):
        self.proofs = 0

    def walked(self, iterator):
        return ("walked", iterator)

    def weakly_left_out(self):
        return list

    def prove(self, number):
        self.proofs += number
        return self.against


class Served:
    """The parts of one loader's serving."""

    def __init__(self, **named):
        self.loader = DataLoader(Rows(), batch_size=2, **named)
        self.served = ServedLoader(self.loader, CachePolicy(MemoryBudget(10**6)))
        self.passes = PassState(self.loader, print)
        self.staleness = Staleness(self.served, ProofPace())

    def passthrough(self, reason="is odd"):
        return Passthrough(self.served, self.passes, self.staleness, reason)

    def kept(self, samples):
        return KeptSamples(self.served, self.passes, self.staleness, samples)


def test_the_scripts_own_loader_goes_on_by_itself():
    one = Served()
    strategy = one.passthrough()
    assert strategy.reason == "is odd"
    assert not strategy.stands()
    assert type(strategy.walk(one.loader, iter)) is type(iter(one.loader))
    assert strategy.begin_pass() == strategy.keep(torch.tensor([0]), None, "") == ""
    assert strategy.make(torch.tensor([1, 3]), None).tolist() == [[1.0], [3.0]]


def test_kept_samples_are_asked_in_this_process_and_not_in_workers():
    one, samples = Served(), Samples()
    name, iterator = one.kept(samples).walk(one.loader, lambda loader: "iterator")
    assert (name, iterator) == ("walked", "iterator")
    workers = Served(num_workers=1)
    assert workers.kept(samples).walk(workers.loader, lambda loader: "iterator") == "iterator"


def test_whoever_came_before_asks_the_successor():
    one, samples = Served(), Samples()
    strategy = one.kept(samples)
    assert strategy.stands()  # nothing is watched yet
    strategy.give_way(one.passthrough())
    assert not strategy.stands()
    assert strategy.samples is None
    assert strategy.walk(one.loader, lambda loader: "iterator") == "iterator"


def test_some_samples_are_proven_at_the_start_of_a_pass():
    one, samples = Served(), Samples()
    strategy = one.kept(samples)
    strategy.take(one.loader)
    assert samples.fresh is strategy.staleness.fresh
    assert strategy.begin_pass() == ""
    assert samples.proofs == 2
    strategy.begin_pass()
    assert samples.proofs == 2  # that is not due so soon
    one.staleness.pace.next_s = 0.0
    samples.against = "sample 3 differs"
    strategy.begin_pass()
    assert strategy.successor.reason == "sample 3 differs"


def test_a_change_is_told_at_the_start_of_a_pass_and_nothing_is_proven():
    one, samples = Served(), Samples()
    strategy = one.kept(samples)
    strategy.take(one.loader)
    one.loader.dataset.scale = 2.0
    assert "Rows.scale" in strategy.begin_pass()
    assert samples.proofs == 0
    assert not strategy.stands()


# ----------------------------------------------------------------------------------------------------------- staleness
def test_before_anything_is_kept_nothing_is_stale():
    stale = Served().staleness
    assert stale.stands(direct=False)
    assert (stale.changed, stale.sees_all, stale.due) == ("", False, False)
    assert (stale.begin_pass(), stale.changed_by_reading()) == ("", "")
    stale.end_pass()


def test_in_this_process_a_change_counts_at_once():
    one = Served()
    one.staleness.take(one.loader)
    assert one.staleness.due
    assert one.staleness.sees_all
    one.loader.dataset.scale = 2.0
    assert not one.staleness.stands(direct=False)
    assert one.staleness.changed_by_reading().startswith("Rows changes while it is read")
    assert not one.staleness.due


def test_workers_have_a_copy_of_the_moment_that_the_pass_began():
    one = Served(num_workers=1)
    one.staleness.take(one.loader)
    one.staleness.begin_pass()
    one.loader.dataset.scale = 2.0
    assert one.staleness.stands(direct=False)
    assert one.staleness.changed_by_reading() == ""
    with pytest.raises(ChangedTooLate, match=r"Rows\.scale changed"):
        one.staleness.stands(direct=True)  # nothing is kept, and nobody has what the workers had


def test_files_are_read_by_workers_as_they_are(tmp_path):
    file = tmp_path / "rows.bin"
    file.write_bytes(b"1")
    one = Served(num_workers=1)
    stale = Staleness(one.served, ProofPace(), frozenset({str(file)}))
    stale.take(one.loader)
    assert stale.stands(direct=False)
    file.write_bytes(b"22")
    assert not stale.stands(direct=False)


def test_numbers_that_are_read_anew_may_change_in_this_process_alone():
    values = torch.arange(6.0)

    class Columns(Rows):
        def __getitem__(self, index):
            return values[index]

    for workers, stands in ((0, True), (1, False)):
        one = Served(num_workers=workers)
        one.loader = DataLoader(Columns(), num_workers=workers)
        one.staleness.take(one.loader, read_anew=frozenset({values.data_ptr()}))
        values[3] += 1
        assert one.staleness.fresh.holds() is stands
