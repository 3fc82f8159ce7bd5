"""Next-item recommendation from shopping sessions (GRU4Rec style) with sampled negatives and a BPR-max loss."""
import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def simulate(n_users, n_items, seed):
    """Each user has a taste cluster; a history is a walk over items of this cluster and popular ones."""
    rng = np.random.default_rng(seed)
    clusters = rng.permutation(n_items).reshape(50, -1)
    popular = rng.zipf(1.3, 200_000)
    popular = popular[popular < n_items]
    histories = []
    for _ in range(n_users):
        mine = clusters[rng.integers(0, 50, 2)].ravel()
        n = int(rng.integers(150, 500))
        own = rng.choice(mine, n)
        pop = popular[rng.integers(0, len(popular), n)]
        histories.append(np.where(rng.random(n) < 0.7, own, pop).tolist())
    return histories


class Sessions(Dataset):
    def __init__(self, histories, n_items, length=30, n_neg=48):
        self.histories = histories
        self.n_items = n_items
        self.length = length
        self.n_neg = n_neg

    def __len__(self):
        return len(self.histories)

    def negatives(self, seen):
        out = []
        while len(out) < self.n_neg:
            item = random.randrange(1, self.n_items)
            if item not in seen:  # <<
                out.append(item)
        return out

    def __getitem__(self, u):
        history = self.histories[u]
        start = random.randrange(0, len(history) - self.length - 1)
        window = history[start:start + self.length + 1]
        return (torch.tensor(window[:-1]), torch.tensor(window[1:]),
                torch.tensor(self.negatives(history)))  # <<


class SessionGRU(nn.Module):
    def __init__(self, n_items, dim):
        super().__init__()
        self.items = nn.Embedding(n_items, dim)
        nn.init.normal_(self.items.weight, std=0.05)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.bias = nn.Embedding(n_items, 1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, inputs, positives, negatives):
        h, _ = self.gru(self.items(inputs))
        pos = (h * self.items(positives)).sum(-1) + self.bias(positives).squeeze(-1)
        neg = h @ self.items(negatives).transpose(1, 2) + self.bias(negatives).transpose(1, 2)
        return pos, neg


def bpr_max(pos, neg):
    weight = neg.softmax(-1)
    better = torch.sigmoid(pos.unsqueeze(-1) - neg)
    return -((weight * better).sum(-1) + 1e-8).log().mean()


class Fit:
    def __init__(self, args):
        self.args = args
        self.loader = DataLoader(Sessions(simulate(args.users, args.items, args.seed), args.items),
                                 batch_size=args.batch, shuffle=True, drop_last=True)
        self.model = SessionGRU(args.items, args.dim)
        self.opt = torch.optim.Adagrad(self.model.parameters(), lr=0.05)

    def epoch(self):
        total = margin = 0.0
        for inputs, positives, negatives in self.loader:
            pos, neg = self.model(inputs, positives, negatives)
            loss = bpr_max(pos, neg)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
            margin += (pos.detach().unsqueeze(-1) > neg.detach()).float().mean().item()
        return total / len(self.loader), margin / len(self.loader)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=3000)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--dim", type=int, default=48)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    fit = Fit(args)
    for e in range(1, args.epochs + 1):
        t = time.time()
        loss, auc = fit.epoch()
        print("epoch %2d  bpr-max %.4f  pairwise %.4f  %.1fs" % (e, loss, auc, time.time() - t), flush=True)
