"""Loaders that hand out pinned memory while a fix is on."""

import sys
import types

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from flatout.fixes.core.pinned_loaders import pin_loaders


class Site:
    """Keeps what a fix would do."""

    def __init__(self):
        self.made, self.hits, self.switches = {}, [], []

    def wrap(self, dotted, make):
        self.made[dotted] = make

    def hit(self, name):
        self.hits.append(name)

    def switch(self, on, off):
        self.switches.append((on, off))


@pytest.fixture
def site():
    made = Site()
    pin_loaders(made)
    return made


def loader(**named):
    return DataLoader(TensorDataset(torch.ones(2)), **named)


@pytest.mark.parametrize(
    ("device", "own", "pinned", "hits"), [(True, False, True, 1), (True, True, True, 0), (False, False, False, 0)]
)
def test_loaders_pin_where_there_is_a_device(site, monkeypatch, device, own, pinned, hits):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device)
    walked = loader(pin_memory=own)
    seen = []
    site.made["torch.utils.data.dataloader:DataLoader.__iter__"](lambda one: seen.append(one.pin_memory))(walked)
    assert seen == [pinned]
    assert len(site.hits) == hits


def test_when_it_is_switched_off_the_script_has_its_own_setting(site, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    walked, own = loader(), loader(pin_memory=True)
    for one in (walked, own):
        site.made["torch.utils.data.dataloader:DataLoader.__iter__"](lambda _: None)(one)
    ((on, off),) = site.switches
    on()
    off()
    assert (walked.pin_memory, own.pin_memory) == (False, True)


def test_what_cannot_be_pinned_stays_as_it_is(site):
    pin = site.made["torch.utils.data._utils.pin_memory:pin_memory"](lambda data, device: ("pinned", data, device))
    sparse, far = torch.eye(2).to_sparse(), torch.empty(2, device="meta")
    assert pin(sparse) is sparse
    assert pin(far) is far
    assert pin("text", "cuda") == ("pinned", "text", "cuda")
    plain = torch.ones(2)
    assert pin(plain)[1] is plain


def test_torch_is_the_scripts_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=None))
    pin_loaders(Site())
