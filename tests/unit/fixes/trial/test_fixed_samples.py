"""Samples that are held for a ceiling: what stands before the place is done once, what stands behind it each time."""

import numpy
import pytest
import torch
from tests.unit.fixes.training import under
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, default_collate

from flatout.fixes.core.catalog import find_arm, find_fix


class Counted:
    """An operation that counts its calls; at random where it is told so."""

    def __init__(self, random=False):
        self.calls, self.random = 0, random

    def __call__(self, value):
        self.calls += 1
        return value + torch.rand(()) if self.random else value * 2


class Compose:
    """As torchvision's."""

    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for one in self.transforms:
            value = one(value)
        return value


class Rows(Dataset):
    def __init__(self, transform=None):
        self.transform, self.reads = transform, []

    def __len__(self):
        return 12

    def __getitem__(self, index):
        self.reads.append(index)
        row = torch.full((2,), float(index))
        return (self.transform(row) if self.transform else row), index


def drawn(data, place, on=True, **options):
    """Return the batches of one pass with samples held, and what the fix did."""
    with under("held-samples", place=place, on=on) as process:
        batches = list(DataLoader(data, batch_size=4, **options))
    return batches, process.site.hits


def test_whole_samples_are_asked_for_once_and_collated_each_time():
    data, collated = Rows(), []

    def collate(samples):
        collated.append(len(samples))
        return default_collate(samples)

    batches, hits = drawn(data, "sample", collate_fn=collate)
    assert sorted(data.reads) == [0, 1, 2, 3]
    assert [batch[1].tolist() for batch in batches] == [[0, 1, 2, 3]] * 3
    assert hits == {"sample": 3}
    assert len(collated) >= 3


def test_raw_samples_are_read_once_and_transformed_each_time():
    operation = Counted()
    data = Rows(operation)
    batches, hits = drawn(data, "raw")
    before = operation.calls
    assert all(torch.equal(batch[0], 2 * torch.arange(4.0).view(4, 1).expand(4, 2)) for batch in batches)
    assert hits == {"raw": 3}
    assert data.reads.count(3) <= 1  # of the copy that is asked, more
    assert before >= 12


def test_what_stands_before_the_first_random_operation_is_done_once():
    fixed, random, last = Counted(), Counted(random=True), Counted()
    batches, hits = drawn(Rows(Compose(fixed, random, last)), "fixed")
    assert hits == {"fixed": 3}
    assert fixed.calls == 4 + 4  # for a look at the list, and for what is held
    assert last.calls >= 12
    assert not torch.equal(batches[0][0], batches[1][0])


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (Rows(), "raw"),
        (Rows(), "fixed"),
        (Rows(Counted()), "fixed"),
        (Rows(Compose(Counted(), Counted())), "fixed"),
        (Rows(Compose(Counted(random=True), Counted())), "fixed"),
    ],
    ids=["no transform", "nothing to part", "no list", "nothing random", "random at once"],
)
def test_where_there_is_no_such_place_every_sample_is_the_script_s_own(data, place):
    batches, hits = drawn(data, place)
    assert torch.cat([batch[1] for batch in batches]).tolist() == list(range(12))
    assert hits == {}


def test_what_opens_a_file_is_no_transform():
    data = Rows()
    data.loader = Counted()
    type(data).__getitem__, own = lambda self, index: (self.loader(torch.ones(1)), index), type(data).__getitem__
    try:
        assert drawn(data, "raw")[1] == {}
    finally:
        type(data).__getitem__ = own


def test_streams_are_left_alone():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.arange(8.0))

    batches, hits = drawn(Stream(), "sample")
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert hits == {}


def indices(batches):
    return [batch[1].tolist() for batch in batches]


FORKED = {"num_workers": 1, "multiprocessing_context": "fork"}
OWN = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_workers_that_are_forked_follow_the_switch():
    with under("held-samples", place="sample", on=False) as process:
        loader = DataLoader(Rows(), batch_size=4, persistent_workers=True, **FORKED)
        assert indices(loader) == OWN
        assert process.site.hits == {}
        process.site.enable()
        assert indices(loader) == [OWN[0]] * 3
        assert process.site.hits == {"in workers": 3}
        process.site.disable()
        assert indices(loader) == OWN
        assert process.site.hits == {"in workers": 3}


def test_a_worker_follows_from_the_batch_that_it_begins_next():
    with under("held-samples", place="sample", on=False) as process:
        loader = DataLoader(Rows(), batch_size=1, prefetch_factor=2, **FORKED)
        drawn_one_by_one = iter(loader)
        first = [next(drawn_one_by_one) for _ in range(3)]
        process.site.enable()
        later = [next(drawn_one_by_one)[1].item() for _ in range(9)]
    assert indices(first) == [[0], [1], [2]]
    held = next(place for place, index in enumerate(later) if later.count(index) > 1)
    assert held <= 3  # what the worker had begun, or had ready
    assert later[:held] == list(range(3, 3 + held))
    assert len(set(later[held:])) == 1


def test_what_is_held_for_a_validation_does_not_count_where_workers_make_the_training_s_samples():
    with under("held-samples", place="sample", workers=True) as process:
        assert indices(DataLoader(Rows(), batch_size=4)) == [OWN[0]] * 3
        assert process.site.hits == {}
        assert indices(DataLoader(Rows(), batch_size=4, **FORKED)) == [OWN[0]] * 3
        assert process.site.hits == {"in workers": 3}


def test_each_worker_holds_samples_of_its_own():
    batches, hits = drawn(Rows(), "sample", **FORKED | {"num_workers": 2})
    assert indices(batches) == [OWN[0], OWN[1], OWN[0]]
    assert hits == {"in workers": 3}
    batches, hits = drawn(Rows(Counted()), "raw", **FORKED)
    assert batches[2][0].tolist() == (2 * torch.arange(4.0).view(4, 1).expand(4, 2)).tolist()
    assert hits == {"in workers": 3}


@pytest.mark.slow
def test_workers_that_are_started_anew_know_nothing_of_it():
    batches, hits = drawn(Rows(), "sample", num_workers=1, multiprocessing_context="spawn")
    assert indices(batches) == OWN
    assert hits == {}


def test_the_last_batch_is_as_short_as_ever_and_a_longer_one_as_long():
    batches, _ = drawn(Subset(Rows(Counted()), range(10)), "raw")
    assert [len(batch[1]) for batch in batches] == [4, 4, 2]
    batches, _ = drawn(ConcatDataset([Rows(Counted()), Rows(Counted())]), "sample", shuffle=True)
    assert {len(batch[1]) for batch in batches} == {4}


def test_a_transform_and_a_collate_function_that_change_what_they_are_given_find_it_as_it_was():
    class InPlace:
        def __call__(self, value):
            return value.mul_(2)

    def collate(samples):
        for x, _ in samples:
            x += 1
        return default_collate(samples)

    batches, _ = drawn(Rows(InPlace()), "raw")
    assert all(batch[0][3, 0] == 6 for batch in batches)
    batches, _ = drawn(Rows(), "sample", collate_fn=collate)
    assert all(batch[0][3, 0] == 4 for batch in batches)


def test_what_fails_when_it_is_held_is_left_to_the_script():
    class Odd(Rows):
        def __getitem__(self, index):
            raise_ = numpy.random.rand() if self.transform is None else 0
            if not isinstance(self.transform, Counted) and self.transform is not None:
                raise TypeError("not my transform")
            return torch.ones(1) * raise_, index

    batches, hits = drawn(Odd(Counted()), "raw")
    assert len(batches) == 3
    assert hits == {}


def test_switched_off_a_pass_goes_on_with_its_own_samples():
    batches, hits = drawn(Rows(), "sample", on=False)
    assert torch.cat([batch[1] for batch in batches]).tolist() == list(range(12))
    assert hits == {}


def test_it_is_an_arm_of_trials_and_no_cure():
    assert find_arm("held-samples") is not None
    assert find_fix("held-samples") is None


@pytest.mark.parametrize("options", [{}, FORKED], ids=["training process", "worker"])
def test_what_the_script_hands_on_uncopied_the_training_may_change(options):
    with under("held-samples", place="sample"):
        for batch in DataLoader(Rows(), batch_size=4, collate_fn=list, **options):
            assert batch[3][0].tolist() == [3.0, 3.0]
            batch[3][0].mul_(2)


def test_arrays_that_become_tensors_in_their_own_memory_are_copied_too():
    class Arrays(Rows):
        def __getitem__(self, index):
            return numpy.full(2, float(index)), index

    def collate(samples):
        return [torch.from_numpy(array) for array, _ in samples]

    with under("held-samples", place="sample"):
        for batch in DataLoader(Arrays(), batch_size=4, collate_fn=collate):
            assert batch[3].tolist() == [3.0, 3.0]
            batch[3].mul_(2)


def test_samples_of_no_one_memory_are_held_as_well():
    class Sparse(Rows):
        def __getitem__(self, index):
            return super().__getitem__(index)[0].to_sparse(), index

    batches, hits = drawn(Sparse(), "sample", collate_fn=lambda samples: [x.to_dense() for x, _ in samples])
    assert hits == {"sample": 3}
    assert [batch[3].tolist() for batch in batches] == [[3.0, 3.0]] * 3
