"""A fix that meets a place at which it could act, and leaves it alone, says why with what it met."""

import gc
import io
import os

import numpy
import pytest
import torch
from tests.unit.fixes.inputs import Drawing, OwnGenerator, Rows
from tests.unit.fixes.training import Images, train, under
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(40))


class Shuffled(torch.utils.data.Sampler):
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        return iter(range(len(self.source)))

    def __len__(self):
        return len(self.source)


class Handful:
    """An object that a model is called with."""

    def __init__(self, x):
        self.x = x


class OfHandfuls(nn.Linear):
    def forward(self, handful):
        return super().forward(handful.x)


def walked(dataset, **options):
    return lambda: list(DataLoader(dataset(), **{"batch_size": 4} | options))


def cheap():
    return list(range(40))


def short():
    return Rows(8)


def stepped(make, model=lambda: nn.Linear(3, 1), given=lambda: torch.ones(2, 3)):
    """Return a function that makes two steps of an optimizer."""

    def act():
        trained = model()
        optimizer = make(list(trained.parameters()))
        for _ in range(2):
            optimizer.zero_grad()
            trained(given()).sum().backward()
            optimizer.step()

    return act


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def called(model, *batches, around=lambda call, given: call(given)):
    """Return a function that trains a model for as many steps as there are batches."""

    def act():
        trained = model()
        optimizer = sgd(trained.parameters())
        for given in batches:
            around(trained, given).sum().backward()
            optimizer.step()

    return act


def compiled():
    model = nn.Linear(4, 4)
    model.compile(backend="eager")
    return model


def under_autocast(call, given):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return call(given).float()


def as_it_is_saved(thing):
    return lambda: torch.save({"x": torch.ones(3)}, thing())


def frozen():
    gc.freeze()
    try:
        train(steps=2)
    finally:
        gc.unfreeze()


def without_search():
    with torch.autograd.set_detect_anomaly(False):
        pass


def nothing():
    """Do nothing."""


def given(rows, width=4):
    return torch.ones(rows, width)


OF_NUMPY = {"dataset": lambda: Drawing(draw=numpy.random.rand)}
WORKERS = {"workers": 2}
NOT_AHEAD = {**WORKERS, "predicted": False}
CASES = {
    "drawn": ("loader-workers", NOT_AHEAD, walked(**OF_NUMPY), "Drawing draws random numbers"),
    "a generator": ("loader-workers", NOT_AHEAD, walked(OwnGenerator), "OwnGenerator draws from a random generator of"),
    "a stream": ("loader-workers", WORKERS, walked(Stream, batch_size=1), "Stream makes a batch in "),
    "a stream of workers": (
        "loader-workers", WORKERS, walked(Stream, num_workers=1), "the loader of Stream reads a stream, of which wor"
    ),
    "a stream, not ahead": ("loader-workers", NOT_AHEAD, walked(Stream), "the loader of Stream reads a stream, wh"),
    "short": ("loader-workers", WORKERS, walked(short), "the loader of Rows has 2 batches a pass"),
    "cheap": ("loader-workers", WORKERS, walked(cheap), "list makes a batch in "),
    "workers there": ("loader-workers", WORKERS, walked(Rows, num_workers=2), "the loader of Rows has 2 workers"),
    "sampler": ("loader-workers", WORKERS, walked(Rows, sampler=Shuffled(range(40))), "may draw at each batch (Shuff"),
    "none to keep": ("persistent-workers", {}, walked(Rows), "the loader of Rows has no workers"),
    "none ahead": ("device-prefetch", {"kind": "cpu"}, walked(Rows), "a loader has no workers"),
    "no device": ("device-prefetch", {}, nothing, "there is no CUDA device"),
    "no device to keep on": ("device-resident-input", {}, nothing, "there is no CUDA device"),
    "no tensor cores": ("tf32", {}, nothing, "there is no CUDA device"),
    "no cuDNN": ("cudnn-search", {}, nothing, "there is no CUDA device"),
    "no allocator": ("allocator", {}, nothing, "there is no CUDA device"),
    "asked for": (
        "fused-optimizer", {}, stepped(lambda ps: torch.optim.Adam(ps, fused=True)), "asks for fused=True itself"
    ),
    "sparse": (
        "fused-optimizer", {"implementation": "foreach"},
        stepped(sgd, lambda: nn.EmbeddingBag(5, 3, sparse=True), lambda: torch.tensor([[1, 2]])),
        "SGD: gradients are sparse, and torch has no foreach step of these",
    ),
    "a tensor": (
        "fused-optimizer", {}, stepped(lambda ps: torch.optim.Adam(ps, lr=torch.tensor(0.001))), "a setting is a tensor"
    ),
    "plain SGD": ("one-pass-optimizer", {}, stepped(sgd), "sgd: SGD without momentum has one operation"),
    "amsgrad": (
        "one-pass-optimizer", {}, stepped(lambda ps: torch.optim.Adam(ps, amsgrad=True)), "adam: amsgrad is set"
    ),
    "double": (
        "one-pass-optimizer", {},
        stepped(torch.optim.Adam, lambda: nn.Linear(3, 1).double(), lambda: torch.ones(2, 3).double()),
        "adam: its weights are float64",
    ),
    "double model": (
        "bf16-autocast", {}, called(lambda: nn.Linear(4, 4).double(), given(2).double()), "of Linear are not float32"
    ),
    "single model": (
        "float32-compute", {}, called(lambda: nn.Linear(4, 4), *[given(2)] * 2),
        "the weights of Linear are not float64 alone",
    ),
    "autocast": (
        "bf16-autocast", {}, called(lambda: nn.Linear(4, 4), *[given(2)] * 2, around=under_autocast),
        "Linear runs under autocast already",
    ),
    "no images": ("channels-last", {}, called(lambda: nn.Linear(4, 4), *[given(2)] * 2), "Linear has no 2-D convolut"),
    "last already": (
        "channels-last", {}, lambda: train(model=Images().to(memory_format=torch.channels_last)),
        "Images is channels-last already",
    ),
    "compiled": (
        "compiled-module", {}, called(compiled, *[given(2)] * 3), "Linear is called through what the script has compil"
    ),
    "objects": (
        "compiled-module", {}, called(lambda: OfHandfuls(4, 4), *[Handful(given(2))] * 3),
        "OfHandfuls is called with objects whose shapes are not known (Handful)",
    ),
    "other shapes": (
        "compiled-module", {}, called(lambda: nn.Linear(4, 4), *map(given, range(2, 11))),
        "Linear is called with 8 shapes in 8 calls, none of which comes often",
    ),
    "checkpointed": (
        "compiled-module", {},
        called(lambda: nn.Linear(4, 4), *[given(2).requires_grad_()] * 3,
               around=lambda call, x: checkpoint(call, x, use_reentrant=False)),
        "Linear is watched operation by operation",
    ),
    "threads": ("cpu-threads", {"threads": torch.get_num_threads()}, nothing, "already"),
    "frozen": ("gc-control", {}, frozen, "the script has frozen objects itself"),
    "no search": ("anomaly-off", {}, without_search, "the script asks for no anomaly detection"),
    "a file object": ("async-checkpoint", {}, as_it_is_saved(io.BytesIO), "to an object, not to a path (BytesIO)"),
    "no plain file": ("async-checkpoint", {}, as_it_is_saved(lambda: os.devnull), "null has the old format, is open"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "act", "reason"), CASES.values(), ids=CASES)
@pytest.mark.slow
def test_a_fix_that_leaves_a_place_alone_says_why(name, settings, act, reason):
    with under(name, **settings) as process:
        act()
        assert process.site.hits == {}
        assert reason in process.site.stood_back


@pytest.mark.slow
def test_the_first_reason_stays():
    with under("loader-workers", workers=2) as process:
        walked(short)()
        walked(Stream)()
        assert process.site.stood_back.startswith("the loader of Rows has 2 batches")
