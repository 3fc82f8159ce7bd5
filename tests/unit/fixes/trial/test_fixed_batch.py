"""The batch that is held for a ceiling: the same one every step, passes as long as ever, nothing left behind."""

import pytest
import torch
from tests.unit.fixes.training import under
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from flatout.fixes.core.catalog import find_arm, find_fix

ROWS = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))


def loader(**options):
    return DataLoader(ROWS, batch_size=4, **options)


@pytest.mark.parametrize("workers", [0, 1])
def test_every_step_gets_the_first_batch_and_a_pass_is_as_long_as_ever(workers):
    with under("held-batch") as process:
        batches = list(loader(num_workers=workers))
    assert len(batches) == 5
    assert all(batch is batches[0] for batch in batches)
    assert torch.equal(batches[0][1], torch.arange(4))
    assert process.site.hits == {"next": 4}


def test_passes_follow_each_other_with_workers_that_stay():
    with under("held-batch"):
        made = loader(num_workers=1, persistent_workers=True)
        assert [len(list(made)) for _ in range(3)] == [5, 5, 5]


def test_each_loader_has_a_batch_of_its_own():
    with under("held-batch"):
        one, other = loader(), DataLoader(ROWS, batch_size=10)
        assert {len(batch[1]) for batch in one} == {4}
        assert {len(batch[1]) for batch in other} == {10}
        assert {len(batch[1]) for batch in one} == {4}


def test_switched_off_a_pass_goes_on_with_its_own_batches():
    with under("held-batch", on=False) as process:
        batches = iter(loader())
        first = next(batches)
        process.site.enable()
        held = [next(batches), next(batches)]
        process.site.disable()
        rest = list(batches)
    assert held[0] is held[1]
    assert torch.equal(torch.cat([first[1], held[0][1], *(batch[1] for batch in rest)]), torch.arange(20))


def test_a_script_that_changes_its_batches_gets_the_same_values_again():
    with under("held-batch"):
        for x, _ in loader():
            assert x[0, 1] == 1.0
            x.mul_(0.5)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(6.0))


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}, {"batch_size": 2, "num_workers": 1}])
def test_a_pass_whose_length_nobody_knows_goes_on_where_it_was(options):
    plain = [batch.tolist() for batch in DataLoader(Stream(), **options)]
    with under("held-batch", on=False) as process:
        batches = iter(DataLoader(Stream(), **options))
        first = next(batches)
        process.site.enable()
        held = [next(batches) for _ in range(20)]
        process.site.disable()
        rest = list(batches)
    assert all(batch is held[0] for batch in held)
    assert [batch.tolist() for batch in (first, held[0], *rest)] == plain
    assert process.site.hits == {"next": 19}


def test_a_validation_whose_length_nobody_knows_is_left_alone():
    with under("held-batch") as process, torch.no_grad():
        batches = [batch.tolist() for batch in DataLoader(Stream(), batch_size=2)]
    assert batches == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert process.site.hits == {}


def test_a_pass_whose_length_nobody_knows_ends_all_the_same(monkeypatch):
    monkeypatch.setattr("flatout.fixes.trial.fixed_batch._MOST_GIVEN", 10)
    with under("held-batch"):
        batches = [batch.tolist() for batch in DataLoader(Stream(), batch_size=2)]
    assert batches == [[0.0, 1.0]] * 11 + [[2.0, 3.0], [4.0, 5.0]]


def test_copies_of_what_is_held_are_made_once():
    with under("held-batch", place="device"):
        copies = [x.to("meta") for x, _ in loader()]
        other = torch.zeros(3)
        assert other.to("meta") is not other.to("meta")
    assert len({id(copy) for copy in copies}) == 1


def test_a_batch_that_is_held_anew_keeps_no_copies_of_the_old_one():
    with under("held-batch", place="device"):
        for x, _ in loader():
            assert x.to("meta") is x.to("meta")
            x.mul_(0.5)


def test_a_batch_is_pinned_once_where_a_device_is_in_use(monkeypatch):
    pinned = []

    def pin_memory(batch):
        pinned.append(batch)
        return [tensor + 0.5 for tensor in batch]

    monkeypatch.setattr("torch.utils.data._utils.pin_memory.pin_memory", pin_memory)
    with under("held-batch", place="pinned"):
        assert all(batch[0][0, 0] == 0 for batch in loader())
        assert pinned == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with under("held-batch", place="pinned"):
        assert all(batch[0][0, 0] == 0.5 for batch in loader())
    assert len(pinned) == 1


def test_it_is_an_arm_of_trials_and_no_cure():
    assert find_arm("held-batch") is not None
    assert find_fix("held-batch") is None
