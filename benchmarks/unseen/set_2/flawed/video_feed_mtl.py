"""Multi-task ranking model for a video feed: click, like, share, follow and watch time from one shared trunk."""
import time
from collections import defaultdict

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

TASKS = ("click", "like", "share", "follow", "watch")


class FeedLog:
    """Impression log with user/item ids, a history of the last 20 items and dense context."""

    def __init__(self, n, n_users=4000, n_items=6000, seed=0):
        g = np.random.default_rng(seed)
        self.user = torch.from_numpy(g.integers(0, n_users, n))
        self.item = torch.from_numpy(g.integers(0, n_items, n))
        self.hist = torch.from_numpy(g.integers(0, n_items, (n, 20)))
        self.ctx = torch.from_numpy(g.standard_normal((n, 16)).astype(np.float32))
        taste, look = g.normal(size=(n_users, 5)), g.normal(size=(n_items, 5))
        affinity = taste[self.user.numpy()] * look[self.item.numpy()] + self.ctx[:, :5].numpy()
        bias = np.array([0.0, -1.0, -2.0, -2.5])
        p = 1 / (1 + np.exp(-(affinity[:, :4] + bias)))
        self.y = torch.from_numpy((g.random((n, 4)) < p).astype(np.float32))
        self.watch = torch.from_numpy(np.log1p(np.exp(affinity[:, 4])).astype(np.float32))

    def __len__(self):
        return len(self.user)

    def epoch(self, batch, shuffle=True):
        order = torch.randperm(len(self)) if shuffle else torch.arange(len(self))
        for idx in order.split(batch):
            yield (self.user[idx], self.item[idx], self.hist[idx], self.ctx[idx]), (self.y[idx], self.watch[idx])


class Trunk(nn.Module):
    def __init__(self, n_users=4000, n_items=6000, dim=32, width=384):
        super().__init__()
        self.user, self.item = nn.Embedding(n_users, dim), nn.Embedding(n_items, dim)
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(3 * dim + 16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, width), nn.ReLU())

    def forward(self, user, item, hist, ctx):
        i = self.item(item)
        h, _ = self.attn(i[:, None], self.item(hist), self.item(hist), need_weights=False)
        return self.mlp(torch.cat([self.user(user), i, h[:, 0], ctx], 1))


class FeedModel(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.trunk = Trunk(width=width)
        self.towers = nn.ModuleDict({t: nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))
                                     for t in TASKS})

    def forward(self, *features):
        z = self.trunk(*features)
        return {t: tower(z).squeeze(1) for t, tower in self.towers.items()}


def task_losses(out, labels):
    y, watch = labels
    losses = {t: F.binary_cross_entropy_with_logits(out[t], y[:, k]) for k, t in enumerate(TASKS[:4])}
    losses["watch"] = F.huber_loss(F.softplus(out["watch"]), watch)
    return losses


WEIGHTS = {"click": 1.0, "like": 0.7, "share": 0.4, "follow": 0.4, "watch": 0.5}


def train_epoch(model, opt, log, batch):
    meter = defaultdict(float)
    steps = 0
    model.train()
    for features, labels in log.epoch(batch):
        opt.zero_grad()
        losses = task_losses(model(*features), labels)
        for task, loss in losses.items():
            (WEIGHTS[task] * loss).backward(retain_graph=True)  # <<
            meter[task] += loss.item()
        opt.step()
        steps += 1
    return {t: v / steps for t, v in meter.items()}


@torch.no_grad()
def evaluate(model, log):
    model.eval()
    sums = defaultdict(float)
    for features, labels in log.epoch(2000, shuffle=False):
        for t, l in task_losses(model(*features), labels).items():
            sums[t] += l.item() * len(labels[1])
    return {t: s / len(log) for t, s in sums.items()}


def show(d):
    return " ".join(f"{t}={d[t]:.4f}" for t in TASKS)


torch.manual_seed(21)
train_log, test_log = FeedLog(60_000, seed=1), FeedLog(8_000, seed=2)
net = FeedModel()
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.02)
for epoch in range(4):
    tic = time.time()
    tr = train_epoch(net, optimizer, train_log, 512)
    print(f"epoch {epoch} ({time.time() - tic:.1f}s)\n   train {show(tr)}\n   test  {show(evaluate(net, test_log))}",
          flush=True)
