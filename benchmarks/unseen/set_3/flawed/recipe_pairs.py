"""Two-tower BPR for recipe suggestions; implicit feedback ("cooked it")."""
import random
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

USERS, RECIPES, TAGS = 4000, 3000, 60


def cook_log(seed):
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(USERS, 8))
    kind = rng.normal(size=(RECIPES, 8))
    cooked = {}
    for u in range(USERS):
        score = kind @ taste[u] + rng.gumbel(size=RECIPES) * 2
        k = int(rng.integers(10, 60))
        cooked[u] = [int(r) for r in np.argpartition(-score, k)[:k]]
    tags = rng.integers(0, TAGS, size=(RECIPES, 5))
    return cooked, torch.from_numpy(tags)


class Triples(IterableDataset):
    """Yields (user, cooked recipe, recipe never cooked)."""

    def __init__(self, cooked, per_epoch):
        self.cooked = cooked
        self.per_epoch = per_epoch
        self.all_recipes = list(range(RECIPES))

    def __len__(self):
        return self.per_epoch

    def negative(self, user):
        candidates = list(set(self.all_recipes) - set(self.cooked[user]))  # <<
        return random.choice(candidates)

    def __iter__(self):
        for _ in range(self.per_epoch):
            user = random.randrange(USERS)
            yield user, random.choice(self.cooked[user]), self.negative(user)  # <<


class Towers(nn.Module):
    def __init__(self, tags, dim=48):
        super().__init__()
        self.register_buffer("tags", tags)
        self.user = nn.Embedding(USERS, dim)
        self.recipe = nn.Embedding(RECIPES, dim)
        self.tag = nn.EmbeddingBag(TAGS, dim, mode="mean")
        self.user_net = nn.Sequential(nn.Linear(dim, 96), nn.ReLU(), nn.Linear(96, dim))
        self.item_net = nn.Sequential(nn.Linear(2 * dim, 96), nn.ReLU(), nn.Linear(96, dim))

    def items(self, r):
        return self.item_net(torch.cat([self.recipe(r), self.tag(self.tags[r])], 1))

    def forward(self, u, pos, neg):
        a = self.user_net(self.user(u))
        return (a * self.items(pos)).sum(1), (a * self.items(neg)).sum(1)


@torch.no_grad()
def hit_rate(model, held, cooked, k=20):
    model.eval()
    items = model.items(torch.arange(RECIPES))
    users = torch.arange(0, USERS, 8)
    scores = model.user_net(model.user(users)) @ items.T
    for row, u in enumerate(users.tolist()):
        scores[row, cooked[u]] = -1e9
    top = scores.topk(k, dim=1).indices
    return (top == held[users][:, None]).any(1).float().mean().item()


def main(epochs=6, batch=256, per_epoch=32_000):
    random.seed(2)
    torch.manual_seed(2)
    cooked, tags = cook_log(2)
    held = torch.tensor([cooked[u].pop() for u in range(USERS)])
    loader = DataLoader(Triples(cooked, per_epoch), batch_size=batch)
    model = Towers(tags)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        model.train()
        tic, total, n = time.time(), 0.0, 0
        for user, pos, neg in loader:
            p, q = model(user, pos, neg)
            loss = -F.logsigmoid(p - q).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            n += 1
            if n % 50 == 0:
                print(f"epoch {epoch} batch {n} bpr {total / n:.4f}")
        print(f"epoch {epoch}: bpr {total / n:.4f} hit@20 {hit_rate(model, held, cooked):.3f} in {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
