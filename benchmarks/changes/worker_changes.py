"""Workers and counters: state that belongs to a process, or to several."""

import collections
import random

import numpy as np
import torch
import torch.multiprocessing as mp
from recording import streams
from script_list import decode, features, script
from torch.utils.data import DataLoader, Dataset, get_worker_info


@script("workers", attributes=["stage"])
def worker_processes_see_a_shared_stage(wrap, rec):
    class Staged(Dataset):
        def __init__(self):
            self.x, self.stage = features(), mp.Value("i", 0)

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i] * (1 + self.stage.value), i

    data = Staged()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True, num_workers=2))
    for epoch in range(5):
        data.stage.value = epoch // 2
        for batch in loader:
            rec(batch)
    rec(streams())


@script("workers", attributes=["seen"])
def worker_processes_count_what_they_read(wrap, rec):
    class Counted(Dataset):
        def __init__(self):
            self.x, self.seen = features(), mp.Array("i", 256)

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            self.seen[i] += 1
            return self.x[i]

    data = Counted()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True, num_workers=2))
    for _ in range(3):
        for batch in loader:
            rec(batch)
        rec(list(data.seen))


@script("workers")
def worker_init_seeds_and_splits(wrap, rec):
    class Jittered(Dataset):
        def __init__(self):
            self.x, self.start = features(), 0

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i] + (self.start if i % 40 == 7 else 0)

    def prepare(worker):
        random.seed(worker)
        get_worker_info().dataset.start = worker + random.random()

    loader = wrap(DataLoader(Jittered(), batch_size=16, num_workers=2, worker_init_fn=prepare))
    for _ in range(4):
        for batch in loader:
            rec(batch)


@script("workers", attributes=["scale"])
def worker_processes_that_stay_keep_the_old_value(wrap, rec):
    class Scaled(Dataset):
        def __init__(self):
            self.x, self.scale = features(), 1.0

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i] * self.scale

    data = Scaled()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True))
    for epoch in range(5):
        data.scale = 1.0 + epoch
        for batch in loader:
            rec(batch)


@script("workers")
def worker_samples_drawn_from_all_streams(wrap, rec):
    class Drawn(Dataset):
        def __len__(self):
            return 128

        def __getitem__(self, i):
            return torch.rand(3), random.random(), np.random.rand(2), i

    loader = wrap(DataLoader(Drawn(), batch_size=16, shuffle=True, num_workers=2))
    for _ in range(3):
        for batch in loader:
            rec(batch)
    rec(streams())


@script("counters", attributes=["calls"])
def counter_in_a_decorator(wrap, rec):
    calls = collections.Counter()

    def counted(function):
        def inner(*args):
            calls[function.__name__] += 1
            return function(*args)

        return inner

    class Counted(Dataset):
        def __init__(self):
            self.x = features()

        def __len__(self):
            return 256

        @counted
        def load(self, i):
            decode()
            return self.x[i]

        def __getitem__(self, i):
            return self.load(i)

    loader = wrap(DataLoader(Counted(), batch_size=16, shuffle=True))
    rec(dict(calls))
    for _ in range(3):
        for batch in loader:
            rec(batch)
        rec(dict(calls))
