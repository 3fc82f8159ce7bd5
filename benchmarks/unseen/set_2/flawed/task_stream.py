"""Class-incremental learning with a loss-weighted rehearsal memory.

Ten "tasks" of two classes each arrive one after the other. Every step mixes fresh samples with samples drawn
from the memory, harder ones more often.
"""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

DIM = 256


@dataclass
class Config:
    tasks: int = 8
    per_task: int = 4000
    fresh: int = 64
    replayed: int = 64
    passes: int = 3
    lr: float = 0.02
    seed: int = 21


def make_task(rng, k, n):
    centers = rng.normal(0, 1, (2, DIM)).astype(np.float32)
    y = rng.integers(0, 2, n)
    x = 0.45 * centers[y] + rng.normal(0, 1, (n, DIM)).astype(np.float32)
    return x.astype(np.float32), y + 2 * k


class Memory:
    def __init__(self, capacity, rng):
        self.x = np.zeros((capacity, DIM), np.float32)
        self.y = np.zeros(capacity, np.int64)
        self.weight = np.zeros(capacity)
        self.size = 0
        self.rng = rng

    def add(self, x, y):
        n = len(x)
        self.x[self.size:self.size + n] = x
        self.y[self.size:self.size + n] = y
        self.weight[self.size:self.size + n] = self.weight[:self.size].mean() if self.size else 1.0
        self.size += n

    def draw(self):
        w = self.weight[:self.size]
        i = self.rng.choice(self.size, p=w / w.sum())  # <<
        return i, self.x[i], self.y[i]

    def batch(self, n):
        picks = [self.draw() for _ in range(n)]  # <<
        idx, x, y = zip(*picks)
        return np.array(idx), torch.from_numpy(np.stack(x)), torch.from_numpy(np.array(y))

    def reweigh(self, idx, losses):
        self.weight[idx] = 0.9 * self.weight[idx] + 0.1 * (losses + 0.05)


def build(classes):
    return nn.Sequential(nn.Linear(DIM, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, classes))


@torch.no_grad()
def accuracy(net, tests):
    return [round((net(x).argmax(1) == y).float().mean().item(), 3) for x, y in tests]


def run(cfg: Config):
    rng = np.random.default_rng(cfg.seed)
    torch.manual_seed(cfg.seed)
    net = build(2 * cfg.tasks)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr, momentum=0.9)
    memory = Memory(cfg.tasks * cfg.per_task, rng)
    tests = []
    for k in range(cfg.tasks):
        x, y = make_task(rng, k, cfg.per_task + 400)
        tests.append((torch.from_numpy(x[cfg.per_task:]), torch.from_numpy(y[cfg.per_task:])))
        x, y = x[:cfg.per_task], y[:cfg.per_task]
        start = time.time()
        for _ in range(cfg.passes):
            order = rng.permutation(cfg.per_task)
            for lo in range(0, cfg.per_task - cfg.fresh + 1, cfg.fresh):
                rows = order[lo:lo + cfg.fresh]
                bx, by = torch.from_numpy(x[rows]), torch.from_numpy(y[rows])
                idx = None
                if memory.size:
                    idx, mx, my = memory.batch(cfg.replayed)
                    bx, by = torch.cat([bx, mx]), torch.cat([by, my])
                losses = F.cross_entropy(net(bx), by, reduction="none")
                opt.zero_grad()
                losses.mean().backward()
                opt.step()
                if idx is not None:
                    memory.reweigh(idx, losses.detach()[cfg.fresh:].numpy())
        memory.add(x, y)
        print(f"task {k}: accuracies {accuracy(net, tests)} ({time.time() - start:.1f} s)")


if __name__ == "__main__":
    run(Config())
