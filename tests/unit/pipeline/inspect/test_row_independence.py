"""Collate functions whose rows depend on the other samples: seen in the first pass, whatever its batches hold."""

import copy

import pytest
import torch
from tests.unit.pipeline.programs import Images, padded
from torch.utils.data import DataLoader, default_collate

from flatout.pipeline import compile_loader
from flatout.pipeline.inspect import row_independence
from flatout.pipeline.inspect.row_independence import DEPENDS, RowIndependence
from flatout.watch.dataset_state import same

LONG = 4
FIRST = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]  # each begins and ends with a long one
LATER = [[1, 2, 5, 6], [0, 3, 4, 7], [8, 9, 10, 11]]


class Words(Images):
    """Two long, two short, and so on."""

    def __getitem__(self, index):
        return torch.arange(LONG if index % 4 in (0, 3) else 2), index % 3


class Even(Words):
    """A sample that is the data set's own, for each time that it is asked for."""

    def __init__(self, length):
        super().__init__(length)
        self.rows = [torch.arange(4.0) + place for place in range(length)]

    def __getitem__(self, index):
        return self.rows[index].clone(), index


class Ordered:
    """The batches of the pass that is on."""

    batches = FIRST

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def cut(samples):
    """Pad to a length that is always the same."""
    return torch.stack([torch.nn.functional.pad(row, (0, 6 - len(row))) for row, _ in samples]), [
        label for _, label in samples
    ]


def as_many_as_the_largest(samples):
    return torch.nn.functional.one_hot(torch.tensor([label for _, label in samples]))


def divided(samples):
    return torch.stack([row.div_(2) for row, _ in samples])


def on(collate, workers=0, data=Words):
    """Walk a loader three times, plainly and compiled; return what the compiled one says after each pass."""
    order = Ordered()
    plain = DataLoader(data(12), batch_sampler=order, collate_fn=collate, num_workers=workers)
    ours, said = compile_loader(plain), []
    for order.batches in (FIRST, LATER, FIRST):
        assert same(list(plain), list(ours))
        said.append(ours.explain())
    return said


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.slow
def test_rows_padded_to_the_longest_are_not_kept_where_each_batch_has_a_long_one(workers):
    assert DEPENDS in on(padded, workers)[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_padded_to_one_length_are_kept(workers):
    assert "12 samples kept" in on(cut, workers)[-1]


def test_a_form_that_follows_from_the_largest_value_is_seen():
    seen = RowIndependence(as_many_as_the_largest)
    samples = [(torch.zeros(1), label) for label in (2, 0, 1, 2)]
    wanted = as_many_as_the_largest(samples)
    for _ in range(4):
        assert same(seen(samples), wanted)
    assert seen.against == DEPENDS


def test_values_that_depend_on_the_others_are_seen():
    seen = RowIndependence(lambda samples: torch.stack(samples) - torch.stack(samples).mean(0))
    seen([torch.tensor([1.0]), torch.tensor([2.0])])
    assert seen.against == DEPENDS


def test_nothing_is_tried_of_torch_s_own_function():
    seen = RowIndependence(default_collate)
    assert same(seen([1, 2, 3]), default_collate([1, 2, 3]))
    assert (seen.against, seen._turn) == ("", 0)


def test_samples_and_random_streams_are_left_as_they_are():
    def collate(samples):
        if len(samples) == 1:
            torch.rand(3)
        return torch.stack([sample.div_(2) for sample in samples])

    seen, samples = RowIndependence(collate), [torch.full((2,), float(place)) for place in range(4)]
    wanted, before = [sample / 2 for sample in copy.deepcopy(samples)], torch.random.get_rng_state()
    assert same(seen(samples), torch.stack(wanted))
    assert same(samples, wanted)
    assert torch.equal(before, torch.random.get_rng_state())
    assert seen.against == DEPENDS  # it draws for one sample


class Counting:
    """Numbers its batches."""

    def __init__(self):
        self.calls = 0

    def __call__(self, samples):
        self.calls += 1
        return torch.stack(samples) + self.calls


def test_what_a_function_counts_is_as_it_would_be():
    collate = Counting()
    seen = RowIndependence(collate)
    for number in range(1, 6):
        assert same(seen([torch.zeros(1), torch.zeros(1)]), torch.full((2, 1), float(number)))
    assert collate.calls == 5
    assert seen.against == DEPENDS


@pytest.fixture
def tried(monkeypatch):
    """The places whose samples were collated by themselves, batch by batch."""
    places = []
    compared = RowIndependence._compared
    monkeypatch.setattr(RowIndependence, "_compared", lambda *given: places.append(given[2]) or compared(*given))
    return places


def test_each_sample_of_a_batch_gets_its_turn(tried):
    seen, samples = RowIndependence(torch.stack), [torch.tensor(place) for place in range(50)]
    for _ in range(9):
        seen(samples)
    assert {place for places in tried for place in places} == set(range(50))
    assert seen.against == ""


@pytest.mark.parametrize(("spent_s", "wanted"), [(4.0, 33), (6.0, 32)])
def test_nothing_more_is_tried_once_it_has_taken_its_part_of_the_time(monkeypatch, tried, spent_s, wanted):
    seen, now = RowIndependence(torch.stack), [1.0]
    monkeypatch.setattr(row_independence.time, "perf_counter", lambda: now[0])
    for _ in range(32):
        seen([torch.zeros(1), torch.zeros(1)])
    seen._spent_s, now[0] = spent_s, 101.0
    seen([torch.zeros(1), torch.zeros(1)])
    assert len(tried) == wanted


def test_a_function_that_cannot_take_one_sample_speaks_against_it():
    def collate(samples):
        return torch.stack([samples[0], samples[1], *samples[2:]])

    seen = RowIndependence(collate)
    assert len(seen([torch.ones(1)] * 3)) == 3
    assert seen.against == "its collate function raised IndexError on 1 sample"


def test_samples_that_cannot_be_copied_speak_against_it():
    seen = RowIndependence(lambda samples: torch.tensor([0.0] * len(samples)))
    assert len(seen([(each for each in ()), (each for each in ())])) == 2
    assert "copying a sample raised TypeError" in seen.against


def test_a_function_that_changes_its_samples_gives_the_same_under_it():
    assert "12 samples kept" in on(divided, data=Even)[-1]
