"""The loader drawn from without training, once the arms are measured."""

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from flatout.fixes.trial.loader_alone import LoaderAlone
from flatout.pipeline import compile_loader
from flatout.probe.core.seams import Seams

PAIR = {"arm": 0, "baseline_ms": 9.0, "candidate_ms": 3.0}


class Slow(Dataset):
    def __init__(self, fails_at=10**9):
        self.asked, self.fails_at = 0, fails_at

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.asked += 1
        if self.asked > self.fails_at:
            raise OSError("the disk is gone")
        time.sleep(0.001)
        return torch.ones(1)


@pytest.fixture
def measured():
    """Return a function that draws from `loader` alone after a few batches of it, and what was written then."""
    seams = Seams()

    def measure(loader, steps=3, pairs=8, seconds=0.2):
        written = []
        alone = LoaderAlone(lambda kind, body: written.append((kind, dict(body))), 2, seconds)
        alone.install(seams)
        batches, follows = iter(loader), alone.behind(lambda step: step == "last")
        for number in range(steps):
            next(batches)
            assert follows("one") is False, number
        for _ in range(pairs):
            alone.write("pair", PAIR)
        written.clear()
        assert follows("last") is True
        return written

    yield measure
    seams.undo()


def test_blocks_of_batches_stand_beside_the_script_s_own_steps(measured):
    written = measured(DataLoader(Slow(), batch_size=4))
    kinds = [kind for kind, _ in written]
    assert kinds == ["begin", *["pair"] * 8, "arm"]
    assert {body["arm"] for _, body in written} == {2}
    pairs = [body for kind, body in written if kind == "pair"]
    assert {pair["baseline_ms"] for pair in pairs} == {9.0}
    assert all(4 <= pair["candidate_ms"] < 40 for pair in pairs)


def test_a_pass_that_ends_is_followed_by_another(measured):
    data = Slow()
    measured(DataLoader(data, batch_size=4), steps=9, seconds=0.3)
    assert data.asked > 60


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_compiled_loader_is_drawn_from_over_several_passes(measured, device):
    loader = compile_loader(DataLoader(TensorDataset(torch.ones(64, 2)), batch_size=4), device=device)
    for _ in range(2):  # the second comes from what is kept
        list(loader)
    written = measured(loader, steps=14, seconds=0.05)
    assert written[-1] == ("arm", {"arm": 2, "decision": "enough"})


@pytest.mark.slow
def test_what_workers_had_made_before_is_not_counted(measured):
    loader = DataLoader(Slow(), batch_size=4, num_workers=1, prefetch_factor=3)
    written = measured(loader, steps=1, seconds=0.5)
    taken = [body["candidate_ms"] for kind, body in written if kind == "pair"]
    assert sum(taken) / len(taken) > 3


def test_of_several_loaders_the_one_that_is_asked_most_is_drawn_from(measured):
    few, many = Slow(), Slow()
    other = iter(DataLoader(few, batch_size=4))
    measured(DataLoader(many, batch_size=4), steps=3)
    next(other)
    assert few.asked == 4
    assert many.asked > 20


@pytest.mark.parametrize(("data", "pairs"), [(Slow(fails_at=14), 8), (Slow(), 3), (TensorDataset(torch.ones(4)), 0)])
def test_what_fails_or_has_nothing_to_stand_beside_costs_nothing_else(measured, data, pairs):
    assert [kind for kind, _ in measured(DataLoader(data, batch_size=4), steps=1, pairs=pairs)] in ([], ["begin"])


def test_a_stream_is_drawn_from_as_well(measured):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.arange(10_000.0))

    written = measured(DataLoader(Stream(), batch_size=2), seconds=0.05)
    assert written[-1] == ("arm", {"arm": 2, "decision": "enough"})
