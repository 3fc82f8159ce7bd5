"""Whatever `compile_loader` hands back, `flatout.explain` says what became of it, and changes nothing of it."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import flatout


class Forever(DataLoader):
    """Begins anew without an end, as the multi-epoch loaders of some packages do."""

    def __iter__(self):
        while True:
            yield from super().__iter__()

    def __len__(self):
        return 7


class Named(DataLoader):
    """Has a method of its own that changes nothing of a walk."""

    def rows(self):
        return len(self.dataset)


class Hostile(Forever):
    """Answers no question about its attributes once it is made."""

    def __getattribute__(self, name):
        if name.startswith("__") or name == "explain":
            raise RuntimeError(name)
        return super().__getattribute__(name)


def data():
    return TensorDataset(torch.arange(32.0).reshape(16, 2))


def test_a_loader_that_walks_in_its_own_way_is_explained_and_stays_what_it_was():
    loader = Forever(data(), batch_size=4)
    before = dict(vars(loader))
    compiled = flatout.compile_loader(loader)
    assert compiled is loader and type(compiled) is Forever
    said = flatout.explain(compiled)
    assert said == "left as it is: Forever iterates in its own way (__iter__, __len__)"
    assert vars(loader) == before and len(loader) == 7 and not hasattr(loader, "explain")


@pytest.mark.parametrize("kind", [DataLoader, Named])
def test_a_compiled_loader_is_explained_as_by_its_own_method(kind):
    loader = flatout.compile_loader(kind(data(), batch_size=4))
    for _ in range(3):
        list(loader)
    assert flatout.explain(loader) == loader.explain()
    assert "made in batches" in loader.explain()
    assert isinstance(loader, kind)


class Explained(DataLoader):
    """Has an `explain` of its own."""

    def explain(self):
        return "mine"


class OnDevice(DataLoader):
    """Has an attribute by a name that a compiled loader uses."""

    def __init__(self, *args, **kwargs):
        self._device = "here"
        super().__init__(*args, **kwargs)

    def where(self):
        return self._device


def test_what_a_class_has_by_the_same_names_stays_its_own():
    explained = flatout.compile_loader(Explained(data(), batch_size=4))
    assert explained.explain() == "mine" and "left as it is" not in flatout.explain(explained)
    elsewhere = flatout.compile_loader(OnDevice(data(), batch_size=4))
    assert elsewhere.where() == "here"
    assert flatout.explain(elsewhere).endswith("OnDevice has attributes that a compiled loader needs (_device)")


def test_what_was_never_compiled_and_what_is_no_loader_is_named():
    assert "was not compiled" in flatout.explain(DataLoader(data()))
    assert flatout.explain([1, 2]) == "left as it is: list is not a torch.utils.data.DataLoader"


def test_a_loader_is_asked_nothing():
    loader = Hostile(data(), batch_size=4)
    assert "__getattribute__" in flatout.explain(flatout.compile_loader(loader))
