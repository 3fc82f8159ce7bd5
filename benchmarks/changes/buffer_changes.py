"""Buffers, streams and caches: data that comes while the training runs, and features that are computed anew."""

import collections
import functools
import queue

import numpy as np
import torch
from recording import streams
from script_list import decode, features, script
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

Step = collections.namedtuple("Step", "state action reward")


class Replay(Dataset):
    """A ring buffer of reinforcement learning, as most write it."""

    def __init__(self, capacity=200):
        self.states = np.zeros((capacity, 8), dtype=np.float32)
        self.rewards = np.zeros(capacity, dtype=np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, state, reward):
        self.states[self.position] = state
        self.rewards[self.position] = reward
        self.position = (self.position + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        decode()
        return self.states[i], self.rewards[i]


@script("buffers", attributes=["states", "rewards"])
def buffer_ring_of_arrays(wrap, rec):
    buffer, actor = Replay(), np.random.RandomState(1)
    for _ in range(120):
        buffer.push(actor.randn(8), 0.0)
    loader = wrap(DataLoader(buffer, batch_size=20, shuffle=True))
    for round_ in range(6):
        for batch in loader:
            rec(batch)
        for _ in range(30):
            buffer.push(actor.randn(8), float(round_))
        rec(len(loader))
    rec(streams())


@script("buffers", attributes=["memory"])
def buffer_deque_of_named_steps(wrap, rec):
    class Memory(Dataset):
        def __init__(self):
            self.memory = collections.deque(maxlen=150)

        def __len__(self):
            return len(self.memory)

        def __getitem__(self, i):
            decode()
            return self.memory[i]

    data, actor = Memory(), torch.Generator().manual_seed(2)
    data.memory.extend(Step(torch.randn(4, generator=actor), i % 2, float(i)) for i in range(100))
    sampler = RandomSampler(range(100), replacement=True, num_samples=64)
    loader = wrap(DataLoader(data, batch_size=16, sampler=sampler))
    for _ in range(6):
        for number, batch in enumerate(loader):
            rec(batch)
            data.memory.append(Step(torch.randn(4, generator=actor), number % 2, 9.0))


@script("buffers", attributes=["rollout"])
def buffer_rollout_made_anew_each_iteration(wrap, rec):
    """On-policy: a new data set and a new loader for every iteration."""
    actor = torch.Generator().manual_seed(2)
    for _ in range(6):
        rollout = TensorDataset(torch.randn(128, 8, generator=actor), torch.randn(128, generator=actor))
        loader = wrap(DataLoader(rollout, batch_size=32, shuffle=True))
        for _ in range(3):
            for batch in loader:
                rec(batch)
    rec(streams())


@script("buffers", attributes=["advantages"])
def buffer_written_into_by_a_function_of_another_object(wrap, rec):
    class Rollout(Dataset):
        def __init__(self):
            self.values, self.advantages = torch.randn(128, 4), torch.zeros(128)

        def __len__(self):
            return 128

        def __getitem__(self, i):
            decode()
            return self.values[i], self.advantages[i]

    class Learner:
        def __init__(self, out):
            self.out = out

        def estimate(self, discount):
            running = torch.zeros(())
            for t in reversed(range(128)):
                running = running * discount + t % 7
                self.out[t] = running

    data = Rollout()
    learner = Learner(data.advantages)
    loader = wrap(DataLoader(data, batch_size=32, shuffle=True))
    for iteration in range(5):
        learner.estimate(0.9 - iteration / 10)
        for _ in range(2):
            for batch in loader:
                rec(batch)


@script("buffers", attributes=["cache"])
def buffer_features_cached_and_refreshed(wrap, rec):
    class Cached(Dataset):
        def __init__(self, encoder):
            self.x, self.encoder, self.cache = features(), encoder, {}

        def __len__(self):
            return 256

        def __getitem__(self, i):
            if i not in self.cache:
                with torch.no_grad():
                    self.cache[i] = self.encoder(self.x[i])
            return self.cache[i], i

    encoder = torch.nn.Linear(64, 8)
    data = Cached(encoder)
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for _ in range(5):
        for batch in loader:
            rec(batch)
        rec(sorted(data.cache))
        with torch.no_grad():
            encoder.weight.mul_(0.9)
        data.cache.clear()


@script("buffers", attributes=["cached", "lookup"])
def buffer_features_behind_an_lru_cache(wrap, rec):
    table = {"version": 0}

    @functools.cache
    def lookup(i):
        decode()
        return float(i + table["version"] * 1000)

    class Looked(Dataset):
        def __len__(self):
            return 200

        def __getitem__(self, i):
            return torch.full((8,), lookup(i)), i

    loader = wrap(DataLoader(Looked(), batch_size=20, shuffle=True))
    for epoch in range(6):
        for batch in loader:
            rec(batch)
        rec(str(lookup.cache_info()))
        if epoch % 2:
            table["version"] += 1
        if epoch == 3:
            lookup.cache_clear()


@script("buffers", attributes=["lines"])
def buffer_of_a_stream_appended_between_passes(wrap, rec):
    class Lines(Dataset):
        def __init__(self):
            self.lines = [f"line {i} of the first file" for i in range(64)]

        def __len__(self):
            return len(self.lines)

        def __getitem__(self, i):
            decode()
            return torch.tensor([float(len(self.lines[i])), float(i), float(len(self.lines))])

    data = Lines()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(6):
        for batch in loader:
            rec(batch)
        data.lines.extend(f"line {i} of file {epoch}" for i in range(10))
        rec(len(loader))


@script("buffers", attributes=["weights", "teacher"])
def buffer_targets_from_a_moving_teacher(wrap, rec):
    class Distilled(Dataset):
        def __init__(self, teacher):
            self.x, self.teacher = features(), teacher

        def __len__(self):
            return 256

        @torch.no_grad()
        def __getitem__(self, i):
            return self.x[i], self.teacher(self.x[i])

    student, teacher = torch.nn.Linear(64, 4), torch.nn.Linear(64, 4)
    loader = wrap(DataLoader(Distilled(teacher), batch_size=32, shuffle=True))
    optimizer = torch.optim.SGD(student.parameters(), 0.01)
    for _ in range(4):
        for x, target in loader:
            rec([x, target])
            (student(x) - target).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for mean, now in zip(teacher.parameters(), student.parameters(), strict=True):
                    mean.lerp_(now, 0.1)


@script("buffers", attributes=["inbox", "rows"])
def buffer_fed_through_a_queue(wrap, rec):
    class Fed(Dataset):
        def __init__(self):
            self.inbox, self.rows = queue.SimpleQueue(), [torch.zeros(4)] * 40

        def __len__(self):
            return 40

        def __getitem__(self, i):
            decode()
            while not self.inbox.empty():
                at, row = self.inbox.get()
                self.rows[at] = row
            return self.rows[i], i

    data = Fed()
    loader = wrap(DataLoader(data, batch_size=8, shuffle=True))
    for epoch in range(5):
        for number, batch in enumerate(loader):
            rec(batch)
            if epoch >= 1:
                data.inbox.put((number, torch.full((4,), float(epoch))))
    rec([row.sum() for row in data.rows])
