# Implicit-feedback recommender: neural matrix factorisation, HR@10 / NDCG@10 on a held-out item per user.
import math
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

CFG = dict(users=2500, items=1500, dim=64, hidden=[128, 64], batch=2048, negatives=4, epochs=5, lr=2e-3, seed=31)


def make_interactions(cfg):
    rng = np.random.default_rng(cfg["seed"])
    p, q = rng.normal(size=(cfg["users"], 6)), rng.normal(size=(cfg["items"], 6))
    pop = rng.gumbel(size=(1, cfg["items"])) * 0.5
    train, held = [], []
    for u in range(cfg["users"]):
        score = p[u] @ q.T * 0.8 + pop[0] + rng.gumbel(size=cfg["items"])
        top = np.argsort(-score)[:int(rng.integers(50, 110))]
        rng.shuffle(top)
        held.append(int(top[0]))
        train.append(top[1:])
    return train, held


class NeuMF(nn.Module):
    def __init__(self, users, items, dim, hidden):
        super().__init__()
        self.u_mf, self.i_mf = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.u_mlp, self.i_mlp = nn.Embedding(users, dim), nn.Embedding(items, dim)
        sizes = [2 * dim, *hidden]
        self.mlp = nn.Sequential(*[m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())])
        self.out = nn.Linear(dim + hidden[-1], 1)
        for e in (self.u_mf, self.i_mf, self.u_mlp, self.i_mlp):
            nn.init.normal_(e.weight, std=0.05)

    def forward(self, u, i):
        mf = self.u_mf(u) * self.i_mf(i)
        deep = self.mlp(torch.cat([self.u_mlp(u), self.i_mlp(i)], -1))
        return self.out(torch.cat([mf, deep], -1)).squeeze(-1)


class Evaluator:
    """Ranks every item the user has not consumed."""

    def __init__(self, train, held, n_items, k=10):
        self.train = train
        self.held = held
        self.n_items = n_items
        self.k = k

    def rank_user(self, model, u):
        items = torch.arange(self.n_items)
        scores = model(torch.full_like(items, u), items)
        scores[self.train[u]] = -math.inf
        ranking = sorted(range(self.n_items), key=lambda i: scores[i], reverse=True)  # <<
        return ranking[:self.k]

    @torch.no_grad()
    def __call__(self, model, sample=120):
        model.eval()
        hr = ndcg = 0.0
        for u in range(sample):
            top = self.rank_user(model, u)  # <<
            if self.held[u] in top:
                hr += 1
                ndcg += 1 / math.log2(top.index(self.held[u]) + 2)
        model.train()
        return hr / sample, ndcg / sample


train, held = make_interactions(CFG)
torch.manual_seed(CFG["seed"])
users = torch.from_numpy(np.repeat(np.arange(CFG["users"]), [len(t) for t in train]))
items = torch.from_numpy(np.concatenate(train))
model = NeuMF(CFG["users"], CFG["items"], CFG["dim"], CFG["hidden"])
optimizer = torch.optim.Adam(model.parameters(), lr=CFG["lr"])
evaluate = Evaluator(train, held, CFG["items"])
print(f"{len(users):,} interactions, random HR@10 {10 / CFG['items']:.4f}")

for epoch in range(CFG["epochs"]):
    t0 = time.time()
    running, steps = 0.0, 0
    for idx in torch.randperm(len(users)).split(CFG["batch"]):
        u, pos = users[idx], items[idx]
        neg = torch.randint(CFG["items"], (len(idx) * CFG["negatives"],))
        uu = torch.cat([u, u.repeat(CFG["negatives"])])
        ii = torch.cat([pos, neg])
        y = torch.cat([torch.ones(len(pos)), torch.zeros(len(neg))])
        loss = F.binary_cross_entropy_with_logits(model(uu, ii), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        steps += 1
    t1 = time.time()
    hr, ndcg = evaluate(model)  # <<
    print(f"epoch {epoch}: loss {running / steps:.4f} [{t1 - t0:.1f}s]  HR@10 {hr:.4f}  NDCG@10 {ndcg:.4f} "
          f"[{time.time() - t1:.1f}s]", flush=True)
