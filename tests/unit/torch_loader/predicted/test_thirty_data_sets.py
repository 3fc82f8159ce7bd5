"""Random samples from worker processes: batches, weights and all random streams are those of the plain training."""

import random

import numpy
import pytest
import torch
from tests.unit.fixes.training import under
from tests.unit.torch_loader.predicted.random_data_sets import CASES, OF_THE_MODULE
from torch import nn
from torch.utils.data import DataLoader

from flatout.watch.dataset_state import parts, same
from flatout.watch.own_generators import generators_in, states_of

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def on_any_machine(monkeypatch):
    """Take what workers make on a busy machine, too, where they are slower than this process."""
    monkeypatch.setattr("flatout.torch_loader.predicted.backoff._LONGEST_WAIT", float("inf"))


EPOCHS = 3


def trained(case):
    """Train for some epochs; return the batches, the weights, where all streams stand, and the number of batches."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    OF_THE_MODULE.bit_generator.state = numpy.random.default_rng(11).bit_generator.state
    dataset = case.make()
    options = {"shuffle": True} if case.loader is dict else case.loader()
    size = {} if case.size is None else {"batch_size": case.size}
    loader = DataLoader(dataset, collate_fn=case.collate, **size, **options)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = []
    for _ in range(EPOCHS):
        for batch in loader:
            batches.append(batch)
            step(model, optimizer, batch, case)
    generators = [each for each in (*generators_in(dataset), loader.generator) if each is not None]
    streams = [torch.get_rng_state(), random.getstate(), [*numpy.random.get_state()], states_of(generators)]
    return batches, [*model.parameters()], streams


def step(model, optimizer, batch, case):
    optimizer.zero_grad()
    model(first_numbers(batch)).square().mean().backward()
    optimizer.step()
    if case.step is not None:
        case.step()


def first_numbers(batch):
    """Return eight numbers of a batch, whatever it is made of."""
    values = [torch.as_tensor(part).float().flatten()[:8] for part in parts(batch) if hasattr(part, "shape")]
    numbers = torch.cat(values)[:8].nan_to_num()
    return nn.functional.pad(numbers, (0, 8 - len(numbers)))[None]


def equal_streams(one, other):
    return (
        torch.equal(one[0], other[0])
        and one[1] == other[1]
        and all(numpy.array_equal(*pair) for pair in zip(one[2], other[2], strict=True))
        and one[3] == other[3]
    )


@pytest.mark.parametrize("name", CASES)
def test_batches_weights_and_streams_are_those_of_the_plain_training(name):
    case = CASES[name]
    plain, weights, streams = trained(case)
    with under("loader-workers", workers=2) as process:
        batches, own_weights, own_streams = trained(case)
        taken = process.site.hits.get("DataLoader", 0)
        assert not process.site.failure
        assert not process.site.stood_back
    assert same(batches, plain)
    assert same([each.detach() for each in own_weights], [each.detach() for each in weights])
    assert equal_streams(own_streams, streams)
    assert taken >= case.least * len(batches)
