"""The random streams of CUDA devices while samples are looked at: as if nobody had looked."""

import pytest
import torch
from tests.unit.pipeline.compile.test_batch_compiler import Pictures
from tests.unit.pipeline.device.test_device_pass import AUGMENTED, RESIZED, UNKNOWN
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline import compile_loader
from flatout.watch.dataset_state import random_states, restore_random_states, seed_streams, undrawn


class Streams:
    """Stands for a machine of two devices: how often each stream was drawn from, since which seed."""

    def __init__(self):
        self.states = [torch.tensor([1, 5]), torch.tensor([2, 0])]
        self.queued = []

    def draw(self):
        self.states[0] = self.states[0] + torch.tensor([0, 1])


@pytest.fixture
def streams(monkeypatch):
    """Devices that are in use."""
    there = Streams()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(there.states))
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda states: setattr(there, "states", list(states)))

    def fresh(seed):
        there.states = [torch.tensor([seed, 0])] * 2

    monkeypatch.setattr(torch.cuda, "manual_seed_all", fresh)
    monkeypatch.setattr(torch.cuda, "draw", there.draw, raising=False)
    return there


def test_a_draw_on_a_device_is_seen_and_undone(streams):
    before = random_states()
    assert undrawn(before, random_states())
    streams.draw()
    assert not undrawn(before, random_states())
    seed_streams(7)
    assert [state.tolist() for state in streams.states] == [[7, 0], [7, 0]]
    restore_random_states(before)
    assert [state.tolist() for state in streams.states] == [[1, 5], [2, 0]]


@pytest.mark.parametrize("transform", [RESIZED, AUGMENTED, UNKNOWN])
def test_a_compiled_loader_leaves_them_where_they_stood(streams, transform):
    compiled = compile_loader(DataLoader(Pictures(transform), batch_size=7, shuffle=True))
    for _ in range(3):
        list(compiled)
    assert [state.tolist() for state in streams.states] == [[1, 5], [2, 0]]


@pytest.mark.parametrize("transform", [RESIZED, AUGMENTED, UNKNOWN])
def test_no_seed_waits_for_a_device_that_is_not_in_use_yet(monkeypatch, transform):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("a seed was left for later"))
    compiled = compile_loader(DataLoader(Pictures(transform), batch_size=7, shuffle=True))
    for _ in range(3):
        list(compiled)


class Noisy(Dataset):
    """Draws on a device, as an augmentation that computes there does."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        torch.cuda.draw()
        return torch.tensor(index)


def test_samples_that_draw_on_a_device_are_left_to_the_script(streams):
    compiled = compile_loader(DataLoader(Noisy(), batch_size=5))
    for number in (1, 2):
        list(compiled)
        assert streams.states[0].tolist() == [1, 5 + 20 * number]
    assert "CUDA" in compiled.explain()
