# Rating prediction on a big-batch two-tower MLP, weights averaged along the way.
import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def ratings(n, users, items, seed):
    g = torch.Generator().manual_seed(seed)
    pu, qi = torch.randn(users, 6, generator=g), torch.randn(items, 6, generator=g)
    u = torch.randint(0, users, (n,), generator=g)
    i = torch.randint(0, items, (n,), generator=g)
    r = 3 + 0.5 * (pu[u] * qi[i]).sum(1) + 0.3 * torch.randn(n, generator=g)
    return u, i, r.clamp(1, 5)


def tower(n, dim, width):
    return nn.Sequential(nn.Embedding(n, dim), nn.Linear(dim, width), nn.GELU(),
                         nn.Linear(width, width), nn.GELU(), nn.Linear(width, dim))


class TwoTower(nn.Module):
    def __init__(self, users, items, dim=64, width=256):
        super().__init__()
        self.user, self.item = tower(users, dim, width), tower(items, dim, width)
        self.mix = nn.Sequential(nn.Linear(2 * dim, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, u, i):
        a, b = self.user(u), self.item(i)
        return 3 + (a * b).mean(1) + self.mix(torch.cat([a, b], 1)).squeeze(1)


def average_(target, source, keep):
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), 1 - keep)


def fit(epochs, batch=1024, users=1500, items=900, n=40_960):
    torch.manual_seed(0)
    u, i, r = ratings(n, users, items, seed=1)
    vu, vi, vr = ratings(2000, users, items, seed=1)
    model = TwoTower(users, items)
    shadow = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=True)
    g = torch.Generator().manual_seed(2)

    for epoch in range(epochs):
        t0 = time.time()
        trace = []
        for rows in torch.randperm(n, generator=g).split(batch):
            loss = F.mse_loss(model(u[rows], i[rows]), r[rows])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            with torch.no_grad():
                average_(shadow, model, 0.995)
            trace.append(loss.detach())
        with torch.no_grad():
            rmse = F.mse_loss(shadow(vu, vi), vr).sqrt().item()
        print(f"epoch {epoch} mse {torch.stack(trace).mean().item():.4f} rmse {rmse:.4f} {time.time() - t0:.2f}s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    fit(parser.parse_args().epochs)
