"""Samples of one batch held at a place on their way."""

import pytest
import torch
from tests.torchvision_stub import torchvision
from torch.utils.data import Dataset, default_collate

from flatout.pipeline.read.fixed_input import PLACES, hold

T = torchvision.transforms


class Fixed:
    calls = 0

    def __call__(self, value):
        Fixed.calls += 1
        return value + 10


class Noisy:
    calls = 0

    def __call__(self, value):
        Noisy.calls += 1
        return value + torch.rand(1)


class Rows(Dataset):
    def __init__(self, transform):
        self.transform, self.reads = transform, []

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(torch.tensor([float(index)])), index


@pytest.fixture(autouse=True)
def counted():
    Fixed.calls = Noisy.calls = 0


def held(transform, place, use=default_collate, indices=(1, 2)):
    return hold(Rows(transform), indices, place, use)


@pytest.mark.parametrize(("place", "fixed", "noisy"), [("raw", 2, 2), ("fixed", 0, 2), ("sample", 0, 0)])
def test_what_lies_behind_the_place_is_done_each_time(place, fixed, noisy):
    found = held(T.Compose([Fixed(), Noisy()]), place)
    Fixed.calls = Noisy.calls = 0
    samples = found.samples(2)
    assert (Fixed.calls, Noisy.calls) == (fixed, noisy)
    assert [number for _, number in samples] == [1, 2]
    assert 11.0 <= samples[0][0].item() < 12.0


def test_where_more_are_asked_for_some_come_again():
    samples = held(T.Compose([Fixed(), Noisy()]), "raw").samples(5)
    assert [number for _, number in samples] == [1, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("transform", "places"),
    [
        (T.Compose([Fixed(), Noisy()]), ("raw", "fixed", "sample")),
        (T.Compose([Noisy(), Fixed()]), ("raw", "sample")),  # nothing stands before the first random one
        (T.Compose([Fixed(), Fixed()]), ("raw", "sample")),  # all does
        (Fixed(), ("raw", "sample")),
    ],
)
def test_a_place_that_is_not_there_is_none(transform, places):
    assert tuple(place for place in PLACES if held(transform, place) is not None) == places


class Loads(Rows):
    def __init__(self):
        super().__init__(None)
        self.loader = lambda index: torch.tensor([float(index)])
        del self.transform

    def __getitem__(self, index):
        return self.loader(index), index


def test_what_opens_a_file_is_no_transform():
    assert hold(Loads(), [1, 2], "raw", default_collate) is None
    assert hold(Loads(), [1, 2], "sample", default_collate) is not None


def in_place(samples):
    return torch.stack([value.add_(1) for value, _ in samples])


def handed_on(samples):
    return [value for value, _ in samples]


@pytest.mark.parametrize("use", [in_place, handed_on])
def test_samples_that_the_script_changes_or_hands_on_are_copies(use):
    found = held(T.Compose([Fixed(), Fixed()]), "sample", use)
    first = found.samples(2)
    first[0][0].fill_(99.0)
    assert found.samples(2)[0][0].item() == 21.0


def test_those_that_it_only_reads_are_not_copied():
    found = held(T.Compose([Fixed(), Fixed()]), "sample")
    assert found.samples(2)[0][0] is found.samples(2)[0][0]


def test_what_the_scripts_own_code_raises_comes_through():
    def fail(samples):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        held(T.Compose([Fixed(), Noisy()]), "sample", fail)
