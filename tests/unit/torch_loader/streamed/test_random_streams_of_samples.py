"""Streams of random shapes, draws, errors and ends, under steps that draw at random: never another batch, in silence.

Modules: flatout.torch_loader.streamed.loose_streams, flatout.torch_loader.streamed.stream_worker.
"""

import random
from dataclasses import dataclass

import numpy
import pytest
import torch
from tests.examples import examples
from tests.unit.fixes.training import under
from torch.utils.data import DataLoader, IterableDataset

from flatout.watch.dataset_state import random_states, same, undrawn

pytestmark = pytest.mark.slow

STREAMS = 120
DRAWS = {
    "nothing": lambda rng: 0.0,
    "python": lambda rng: random.random(),
    "rejecting": lambda rng: float(random.randint(0, 9)),
    "gauss": lambda rng: random.gauss(0, 1),
    "numpy": lambda rng: float(numpy.random.rand()),
    "normal": lambda rng: float(numpy.random.normal()),
    "torch": lambda rng: float(torch.rand(())),
    "own": lambda rng: float(rng.random()),
}


@dataclass
class Spec:
    """How a stream is made, and walked; all of it is drawn from one seed."""

    seed: int

    def __post_init__(self):
        chance = random.Random(self.seed)
        self.length = chance.choice([0, 1, 5, 33, 64, 100])
        self.size = chance.choice([None, 1, 3, 4, 8])
        self.drop_last = self.size is not None and chance.random() < 0.3
        self.draws = chance.sample([*DRAWS], chance.choice([0, 1, 1, 2]))
        self.seldom = chance.choice([1.0, 1.0, 0.5, 0.1])
        self.buffer = chance.choice([0, 0, 7, 30])
        self.own = chance.choice(["none", "of the set", "of the pass", "of the epoch"])
        self.begins = chance.choice(["nothing", "nothing", "counts", "shuffles", "draws when asked"])
        self.ends = chance.choice(["nothing"] * 5 + ["counts", "draws"])
        self.fails = chance.choice([None] * 4 + [chance.randrange(1, 60)])
        self.changes = chance.choice([None] * 6 + [chance.randrange(1, 60)])
        self.step = chance.choice(["nothing", "torch", "python", "varied torch", "varied python", "seeds"])
        self.stop = chance.choice([None, None, None, chance.randrange(1, 20)])
        self.epochs = chance.choice([1, 2, 3])
        self.kind = chance.choice(["tensor", "tuple", "dict", "text"])


class Samples(IterableDataset):
    def __init__(self, spec):
        self.spec, self.epoch, self.begun, self.ended, self.changed = spec, 0, 0, 0, 0
        self.rng = random.Random(1) if spec.own == "of the set" else None

    def __iter__(self):
        if self.spec.begins == "draws when asked":
            return map(self.sample, random.sample(range(self.spec.length), self.spec.length))
        return self.buffered(self.samples())

    def samples(self):
        spec = self.spec
        if spec.begins == "counts":
            self.begun += 1
        if spec.own == "of the pass":
            self.rng = random.Random(self.begun)
        elif spec.own == "of the epoch":
            self.rng = numpy.random.default_rng(self.epoch)
        order = list(range(spec.length))
        if spec.begins == "shuffles":
            numpy.random.shuffle(order)
        for number in order:
            if number == spec.fails:
                raise KeyError(number)
            if number == spec.changes:
                self.changed += 1
            yield self.sample(number)
        if spec.ends == "counts":
            self.ended += 1
        elif spec.ends == "draws":
            random.random()

    def sample(self, number):
        spec, value = self.spec, float(number + 1000 * self.begun)
        if spec.seldom == 1.0 or random.random() < spec.seldom:
            for name in spec.draws:
                value += DRAWS[name](self.rng) if name != "own" or self.rng is not None else 0.0
        x = torch.tensor([value, number])
        return {"tensor": x, "tuple": (x, number), "dict": {"x": x, "n": number}, "text": str(value)}[spec.kind]

    def buffered(self, samples):
        if not self.spec.buffer:
            yield from samples
            return
        held = []
        for sample in samples:
            held.append(sample)
            if len(held) > self.spec.buffer:
                yield held.pop(random.randrange(len(held)))
        random.shuffle(held)
        yield from held


def step(spec, number):
    if spec.step == "torch":
        torch.rand(10)
    elif spec.step == "python":
        random.random()
    elif spec.step == "varied torch":
        torch.rand(number % 5)
    elif spec.step == "varied python":
        random.sample(range(50), number % 4)
    elif spec.step == "seeds" and number % 11 == 5:
        random.seed(number)


def walk(spec):
    """Walk a stream as a training does; return all that the script sees."""
    torch.manual_seed(spec.seed)
    random.seed(spec.seed)
    numpy.random.seed(spec.seed)
    stream, seen = Samples(spec), []
    loader = DataLoader(stream, batch_size=spec.size, drop_last=spec.drop_last)
    for epoch in range(spec.epochs):
        stream.epoch, number = epoch, 0
        batches = iter(loader)
        while number != spec.stop:
            try:
                seen.append(next(batches))
            except StopIteration:
                break
            except KeyError as error:
                seen.append(error.args)
            step(spec, number)
            number += 1
        del batches
        seen.append((stream.begun, stream.ended, stream.changed, random.random()))
    return seen, None if stream.rng is None else stream.rng.random()


@pytest.mark.parametrize("part", range(3))
def test_batches_and_all_that_the_script_sees_are_as_ever(part, monkeypatch):
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._WORTH_S", 0)
    monkeypatch.setattr("flatout.torch_loader.streamed.streamed_loader._LONGEST_WAIT", float("inf"))
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._LAG", 10_000)
    taken = 0
    for seed in range(part, examples(STREAMS), 3):
        spec = Spec(seed)
        plain, states = walk(spec), random_states()
        with under("loader-workers", workers=2) as process:
            ours = walk(spec)
            assert same(ours, plain), spec
            assert undrawn(states, random_states()), spec
            assert not process.site.failure, spec
            taken += process.site.hits.get("DataLoader", 0)
    assert taken
