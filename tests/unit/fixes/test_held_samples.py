"""Samples that are held for a ceiling: what stands before the place is done once, what stands behind it each time."""

import numpy
import pytest
import torch
from tests.unit.fixes.training import under
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, default_collate

from flatout.fixes.catalog import find_arm, find_fix


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


def test_workers_and_streams_are_left_alone():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.arange(8.0))

    batches, hits = drawn(Stream(), "sample")
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert hits == {}
    batches, hits = drawn(Rows(), "sample", num_workers=1)
    assert torch.cat([batch[1] for batch in batches]).tolist() == list(range(12))
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
