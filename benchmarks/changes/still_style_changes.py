"""More scripts whose data set stays as it is: structures, transforms, samplers and loops in other styles."""

import collections
import enum
import functools
import math
import os
import random

import numpy as np
import torch
from recording import streams
from script_list import decode, features, script
from still_changes import Archive, train
from torch.utils.data import DataLoader, Dataset, Sampler, WeightedRandomSampler, default_collate

still = functools.partial(script, changes=False)


class Windows(Dataset):
    """Overlapping windows of a series."""

    def __init__(self, length=2000, width=24):
        self.series = np.sin(np.arange(length) / 7).astype(np.float32)
        self.width = width

    def __len__(self):
        return len(self.series) - self.width - 1

    def __getitem__(self, start):
        decode(1000)
        return self.series[start : start + self.width], self.series[start + self.width]


@still("nothing changes")
def still_windows_of_a_series(wrap, rec):
    train(wrap, rec, Windows(), batch_size=64)


@still("nothing changes")
def still_structured_rows(wrap, rec):
    class Structured(Dataset):
        def __init__(self):
            self.rows = np.zeros(300, dtype=[("x", "f4", 8), ("y", "i8")])
            self.rows["x"] = np.arange(2400).reshape(300, 8)

        def __len__(self):
            return 300

        def __getitem__(self, i):
            decode()
            return self.rows["x"][i].copy(), int(self.rows["y"][i])

    train(wrap, rec, Structured())


@still("nothing changes")
def still_nested_batches(wrap, rec):
    class Nested(Dataset):
        def __init__(self):
            self.x = features()

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return {"image": self.x[i], "meta": {"id": i, "name": f"{i}.png"}, "pair": (self.x[i][:3], [i, i + 1])}

    train(wrap, rec, Nested())


@still("nothing changes")
def still_padding_collate(wrap, rec):
    class Ragged(Dataset):
        def __init__(self):
            self.tokens = [list(range(3 + i % 9)) for i in range(256)]

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode(20_000)
            return torch.tensor(self.tokens[i])

    def pad(samples):
        lengths = torch.tensor([len(sample) for sample in samples])
        return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True), lengths

    train(wrap, rec, Ragged(), collate_fn=pad)


@still("nothing changes")
def still_mixing_collate(wrap, rec):
    def mix(samples):
        x, y = default_collate(samples)
        share = np.random.beta(0.4, 0.4)
        return x * share + x[torch.randperm(len(x))] * (1 - share), y

    class Slow(Archive):
        def __getitem__(self, index):
            decode(40_000)
            return super().__getitem__(index)

    train(wrap, rec, Slow(), collate_fn=mix)


@still("nothing changes")
def still_own_sampler_with_state(wrap, rec):
    class Alternating(Sampler):
        def __init__(self, num):
            self.num, self.epoch = num, 0

        def __len__(self):
            return self.num

        def __iter__(self):
            order = list(range(self.num))
            random.Random(self.epoch).shuffle(order)
            self.epoch += 1
            return iter(order)

    train(wrap, rec, Archive(), sampler=Alternating(256), shuffle=False)


@still("nothing changes")
def still_weighted_sampler(wrap, rec):
    sampler = WeightedRandomSampler([1 + i % 3 for i in range(256)], 256)
    train(wrap, rec, Archive(), sampler=sampler, shuffle=False, epochs=8)


@still("nothing changes")
def still_own_loader_class_without_overrides(wrap, rec):
    class TrainLoader(DataLoader):
        """Shuffles by default."""

        def __init__(self, data, **options):
            super().__init__(data, **{"shuffle": True, **options})

    loader = wrap(TrainLoader(Archive(), batch_size=16))
    for _ in range(4):
        for batch in loader:
            rec(batch)
    rec(streams())


class Stage(enum.Enum):
    TRAIN = "train"
    TEST = "test"


@still("nothing changes")
def still_abstract_parents_and_properties(wrap, rec):
    class Parent(Dataset):
        stage = Stage.TRAIN

        @property
        def table(self):
            return self._table

        def __len__(self):
            return len(self.table)

    class Child(Parent):
        def __init__(self):
            super().__init__()
            self._table = {i: features(1, 16, i)[0] for i in range(200)}

        def __getitem__(self, i):
            decode()
            return self.table[i], self.stage is Stage.TRAIN

    train(wrap, rec, Child())


@still("nothing changes")
def still_lazy_setup_at_the_first_access(wrap, rec):
    class Lazy(Dataset):
        def __init__(self):
            self._x = None

        @property
        def x(self):
            if self._x is None:
                self._x = features()
            return self._x

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i]

    train(wrap, rec, Lazy())


@still("nothing changes")
def still_cached_property_and_lru_cache(wrap, rec):
    @functools.lru_cache(maxsize=16)
    def window(width):
        return torch.hann_window(width)

    class Spectra(Dataset):
        def __init__(self):
            self.waves = features(128, 256)

        @functools.cached_property
        def scale(self):
            return 1 / math.sqrt(256)

        def __len__(self):
            return 128

        def __getitem__(self, i):
            return (self.waves[i] * window(256) * self.scale).abs()

    train(wrap, rec, Spectra())


@still("nothing changes")
def still_environment_that_samples_do_not_read(wrap, rec):
    def note(step):
        os.environ["STEP"] = str(step)

    train(wrap, rec, Archive(), after=note)
    del os.environ["STEP"]


@still("nothing changes")
def still_reads_of_single_samples(wrap, rec):
    data = Archive()
    train(wrap, rec, data, after=lambda step: rec(data[step % 256]))


@still("nothing changes")
def still_random_streams_used_in_between(wrap, rec):
    def draw(step):
        rec([torch.rand(2), random.random(), np.random.rand()])

    train(wrap, rec, Archive(), after=draw)


@still("nothing changes")
def still_two_models_in_turn(wrap, rec):
    data = Archive()
    for number in range(3):
        torch.manual_seed(number)
        train(wrap, rec, data, epochs=2)


@still("nothing changes")
def still_deques_sets_and_tuples(wrap, rec):
    class Various(Dataset):
        def __init__(self):
            self.window = collections.deque(range(200))
            self.hard = frozenset(range(0, 200, 3))
            self.pairs = tuple((i, str(i)) for i in range(200))

        def __len__(self):
            return 200

        def __getitem__(self, i):
            decode()
            return self.window[i], i in self.hard, len(self.pairs[i][1])

    train(wrap, rec, Various())


@still("nothing changes")
def still_embedding_of_a_frozen_model(wrap, rec):
    class Embedded(Dataset):
        def __init__(self, model):
            self.x, self.model = features(), model.eval().requires_grad_(False)

        def __len__(self):
            return 256

        def __getitem__(self, i):
            return self.model(self.x[i])

    train(wrap, rec, Embedded(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh())))
