"""Next-item recommendation (GRU4Rec flavoured) with sampled softmax."""
import argparse
import time
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_sessions(n_users, n_items, max_len, seed):
    rng = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, n_items + 1) ** 0.7
    popularity /= popularity.sum()
    lengths = rng.integers(max_len // 2, max_len + 1, n_users)
    items = np.zeros((n_users, max_len + 1), dtype=np.int64)
    start = rng.choice(n_items, n_users, p=popularity)
    jump = rng.integers(1, 40, (n_users, max_len + 1))
    walk = (start[:, None] + np.cumsum(jump, axis=1)) % n_items
    for u, n in enumerate(lengths):
        items[u, : n + 1] = walk[u, : n + 1] + 1          # 0 is padding
    return items, lengths


def draw_negatives(rng, history, catalogue, k):
    unseen = np.setdiff1d(catalogue, history)  # <<
    return rng.choice(unseen, size=k, replace=False)  # <<


def batches(sessions, n_items, batch_size, k, rng):
    catalogue = np.arange(1, n_items + 1)
    for rows in np.array_split(rng.permutation(len(sessions)), len(sessions) // batch_size):
        seq = sessions[rows]
        negatives = np.stack([draw_negatives(rng, s, catalogue, k) for s in seq])  # <<
        yield (
            torch.from_numpy(seq[:, :-1]),
            torch.from_numpy(seq[:, 1:]),
            torch.from_numpy(negatives),
        )


class SessionModel(nn.Module):
    def __init__(self, n_items, dim, hidden):
        super().__init__()
        self.items = nn.Embedding(n_items + 1, dim, padding_idx=0)
        self.bias = nn.Embedding(n_items + 1, 1)
        nn.init.normal_(self.items.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.proj = nn.Linear(hidden, dim)

    def forward(self, inputs, targets, negatives):
        h, _ = self.gru(self.items(inputs))
        h = self.proj(h)
        positive = (h * self.items(targets)).sum(-1, keepdim=True) + self.bias(targets)
        negative = torch.einsum("btd,bkd->btk", h, self.items(negatives))
        negative = negative + self.bias(negatives).transpose(1, 2)
        return torch.cat([positive, negative], dim=-1)


def sampled_softmax(scores, mask):
    loss = -F.log_softmax(scores, dim=-1)[..., 0]
    return (loss * mask).sum() / mask.sum()


def update(model, optimizer, inputs, targets, negatives):
    scores = model(inputs, targets, negatives)
    loss = sampled_softmax(scores, (targets > 0).float())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return loss.detach()


def run(args):
    torch.manual_seed(args.seed)
    sessions, _ = make_sessions(args.users, args.items, args.max_len, args.seed)
    model = SessionModel(args.items, args.dim, args.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = partial(update, model, optimizer)
    rng = np.random.default_rng(args.seed + 1)

    for epoch in range(args.epochs):
        t0 = time.time()
        losses = [step(*batch) for batch in batches(sessions, args.items, args.batch_size, args.negatives, rng)]  # <<
        mean = torch.stack(losses).mean().item()
        print(f"[{epoch:02d}] loss={mean:.4f} time={time.time() - t0:.2f}s", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=13)
    p.add_argument("--users", type=int, default=6400)
    p.add_argument("--items", type=int, default=4000)
    p.add_argument("--max-len", type=int, default=20)
    p.add_argument("--batch-size", type=int, default=100)
    p.add_argument("--negatives", type=int, default=32)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--seed", type=int, default=5)
    run(p.parse_args())
