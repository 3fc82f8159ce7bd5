"""Samplers and data sets that learn from the losses: mining, importance, active learning, balancing."""

import collections
import heapq
import random

import numpy as np
import torch
from recording import streams
from script_list import decode, features, script
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, Subset, WeightedRandomSampler


class Numbered(Dataset):
    def __init__(self, num=256):
        self.x = features(num)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        decode()
        return self.x[i], i


@script("mining", attributes=["weights"])
def mining_weights_of_a_weighted_sampler(wrap, rec):
    sampler = WeightedRandomSampler(torch.ones(256, dtype=torch.double), 192)
    loader = wrap(DataLoader(Numbered(), batch_size=16, sampler=sampler))
    for _ in range(5):
        for x, i in loader:
            rec([x, i])
            sampler.weights[i] = x.double().pow(2).mean(1)
    rec(streams())


@script("mining", attributes=["negatives"])
def mining_hard_negatives_in_triplets(wrap, rec):
    class Triplets(Dataset):
        def __init__(self):
            self.x = features()
            self.negatives = [(i + 128) % 256 for i in range(256)]

        def __len__(self):
            return 256

        def __getitem__(self, i):
            decode()
            return self.x[i], self.x[i ^ 1], self.x[self.negatives[i]]

    data = Triplets()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    project = torch.nn.Linear(64, 8)
    for epoch in range(5):
        for batch in loader:
            rec(batch)
        with torch.no_grad():
            points = project(data.x)
            near = torch.cdist(points, points).fill_diagonal_(1e9).argmin(1).tolist()
        for i in range(epoch, 256, 19):
            data.negatives[i] = near[i]


@script("mining", attributes=["weight"])
def mining_importance_weight_comes_with_the_sample(wrap, rec):
    class Weighted(Numbered):
        def __init__(self):
            super().__init__()
            self.weight = torch.ones(256)

        def __getitem__(self, i):
            decode()
            return self.x[i], self.weight[i], i

    data = Weighted()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(5):
        for x, w, i in loader:
            rec([x, w, i])
            if epoch >= 2:
                data.weight[i] = 1 / (1 + x.mean(1).abs())


@script("mining", attributes=["order", "indices"])
def mining_curriculum_by_difficulty(wrap, rec):
    data = Numbered()
    difficulty = data.x.abs().sum(1)
    easy_first = torch.argsort(difficulty).tolist()
    part = Subset(data, easy_first[:64])
    loader = wrap(DataLoader(part, batch_size=16, shuffle=True))
    for epoch in range(6):
        rec(len(loader))
        for batch in loader:
            rec(batch)
        part.indices = easy_first[: 64 + 32 * (epoch + 1)]


@script("mining", attributes=["queue"])
def mining_by_a_heap_of_losses(wrap, rec):
    class Worst(Sampler):
        def __init__(self, num):
            self.queue = [(-1.0, i) for i in range(num)]

        def __iter__(self):
            for _ in range(160):
                yield self.queue[0][1] if random.random() < 0.3 else random.choice(self.queue)[1]

        def __len__(self):
            return 160

    sampler = Worst(256)
    loader = wrap(DataLoader(Numbered(), batch_size=16, sampler=sampler))
    for _ in range(5):
        for x, i in loader:
            rec([x, i])
            for loss, number in zip(x.mean(1).tolist(), i.tolist(), strict=True):
                heapq.heappushpop(sampler.queue, (-loss, number))
    rec(streams())


@script("mining", attributes=["pools"])
def mining_class_balanced_batches(wrap, rec):
    class Balanced(Sampler):
        def __init__(self, labels):
            self.pools = collections.defaultdict(list)
            for number, label in enumerate(labels):
                self.pools[label].append(number)

        def __iter__(self):
            for _ in range(12):
                yield [random.choice(pool) for pool in self.pools.values() for _ in range(4)]

        def __len__(self):
            return 12

    batches = Balanced([i % 4 for i in range(256)])
    loader = wrap(DataLoader(Numbered(), batch_sampler=batches))
    for epoch in range(5):
        for batch in loader:
            rec(batch)
        batches.pools[epoch % 4].pop()
        batches.pools[4].append(epoch)
    rec(streams())


@script("mining", attributes=["batch_size"])
def mining_batch_size_of_the_batch_sampler_grows(wrap, rec):
    data = Numbered()
    batches = BatchSampler(torch.utils.data.SequentialSampler(data), 16, drop_last=False)
    loader = wrap(DataLoader(data, batch_sampler=batches))
    for epoch in range(5):
        batches.batch_size = 16 * (1 + epoch // 2)
        for batch in loader:
            rec(batch)
        rec(len(loader))


@script("mining", attributes=["replaced"])
def mining_rows_replaced_by_their_hardest(wrap, rec):
    data = Numbered()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(6):
        worst, highest = None, -1e9
        for x, i in loader:
            rec([x, i])
            value, at = x.sum(1).max(0)
            if value > highest:
                highest, worst = float(value), int(i[at])
        if epoch >= 2:
            data.x[(worst + 1) % 256].copy_(data.x[worst])


@script("mining", attributes=["epoch"])
def mining_distributed_sampler_with_set_epoch(wrap, rec):
    data = Numbered()
    sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=2, rank=1, seed=3)
    loader = wrap(DataLoader(data, batch_size=16, sampler=sampler))
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for batch in loader:
            rec(batch)
        rec(len(loader))


@script("mining", attributes=["excluded"])
def mining_samples_struck_off(wrap, rec):
    class Cleaned(Numbered):
        def __init__(self):
            super().__init__()
            self.excluded = set()

        def __getitem__(self, i):
            decode()
            while i in self.excluded:
                i = (i + 1) % 256
            return self.x[i], i

    data = Cleaned()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(5):
        for number, (x, i) in enumerate(loader):
            rec([x, i])
            if epoch == 2 and number == 8:
                data.excluded.add(int(i[0]))
        if epoch == 3:
            data.excluded |= {5, 6, 7}


@script("mining", attributes=["centers"])
def mining_clusters_moved_each_epoch(wrap, rec):
    class Clustered(Numbered):
        def __init__(self):
            super().__init__()
            self.centers = np.random.RandomState(0).randn(4, 64).astype(np.float32)

        def __getitem__(self, i):
            decode()
            distance = ((self.centers - self.x[i].numpy()) ** 2).sum(1)
            return self.x[i], int(distance.argmin())

    data = Clustered()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    for _ in range(4):
        sums, counts = np.zeros((4, 64)), np.zeros(4)
        for x, label in loader:
            rec([x, label])
            np.add.at(sums, label.numpy(), x.numpy())
            np.add.at(counts, label.numpy(), 1)
        np.divide(sums, np.maximum(counts, 1)[:, None], out=data.centers, casting="same_kind")


@script("mining", attributes=["banks"])
def mining_memory_bank_written_by_index(wrap, rec):
    class Bank(Numbered):
        def __init__(self):
            super().__init__()
            self.banks = [torch.zeros(8) for _ in range(256)]

        def __getitem__(self, i):
            decode()
            return self.x[i], self.banks[i], i

    data = Bank()
    loader = wrap(DataLoader(data, batch_size=16, shuffle=True))
    encode = torch.nn.Linear(64, 8).requires_grad_(False)
    for epoch in range(4):
        for x, bank, i in loader:
            rec([x, bank, i])
            for row, number in zip(encode(x), i.tolist(), strict=True):
                if epoch:
                    data.banks[number].mul_(0.5).add_(row, alpha=0.5)
