"""
BPR matrix factorisation for our power listeners (people with > 1000 liked tracks).

    python playlist_bpr.py --steps 900 --dim 32
"""
import argparse
import random

import numpy as np
import torch
import torch.nn.functional as F


class Likes:
    """user -> liked tracks, plus uniform sampling of (user, liked, not liked) triples"""

    def __init__(self, n_users, n_tracks, seed):
        rng = np.random.default_rng(seed)
        taste = rng.normal(size=(n_users, 8))
        tracks = rng.normal(size=(n_tracks, 8))
        self.n_users, self.n_tracks = n_users, n_tracks
        self.liked = []
        self.heldout = []
        for u in range(n_users):
            score = tracks @ taste[u] + rng.gumbel(size=n_tracks)
            top = np.argsort(-score)[: int(rng.integers(1000, 1800))]
            rng.shuffle(top)
            self.heldout.append(top[:20].tolist())
            self.liked.append(top[20:].tolist())
        self.pairs = [(u, i) for u in range(n_users) for i in self.liked[u]]

    def sample_negative(self, u):
        j = random.randrange(self.n_tracks)
        while j in self.liked[u]:  # <<
            j = random.randrange(self.n_tracks)
        return j

    def sample_batch(self, size):
        users, pos, neg = [], [], []
        for _ in range(size):
            u, i = self.pairs[random.randrange(len(self.pairs))]
            users.append(u)
            pos.append(i)
            neg.append(self.sample_negative(u))  # <<
        return torch.tensor(users), torch.tensor(pos), torch.tensor(neg)


class MF(torch.nn.Module):
    def __init__(self, n_users, n_tracks, dim):
        super().__init__()
        self.user = torch.nn.Embedding(n_users, dim)
        self.track = torch.nn.Embedding(n_tracks, dim)
        self.bias = torch.nn.Embedding(n_tracks, 1)
        torch.nn.init.normal_(self.user.weight, std=0.05)
        torch.nn.init.normal_(self.track.weight, std=0.05)
        torch.nn.init.zeros_(self.bias.weight)

    def forward(self, u, i):
        return (self.user(u) * self.track(i)).sum(-1) + self.bias(i).squeeze(-1)


@torch.no_grad()
def hit_rate(model, likes, n_users=50, k=200):
    hits = 0
    for u in range(n_users):
        scores = model.track.weight @ model.user.weight[u] + model.bias.weight.squeeze(1)
        scores[torch.tensor(likes.liked[u])] = -1e9
        top = scores.topk(k).indices
        hits += torch.isin(torch.tensor(likes.heldout[u]), top).sum().item()
    return hits / (20 * n_users)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--batch", type=int, default=1024)
    ap.add_argument("--dim", type=int, default=32)
    ap.add_argument("--lr", type=float, default=5e-3)
    args = ap.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    likes = Likes(n_users=500, n_tracks=15000, seed=0)
    print(f"{len(likes.pairs)} likes of {likes.n_users} listeners")
    model = MF(likes.n_users, likes.n_tracks, args.dim)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    avg = None
    for step in range(1, args.steps + 1):
        u, i, j = likes.sample_batch(args.batch)  # <<
        loss = -F.logsigmoid(model(u, i) - model(u, j)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg = loss.item() if avg is None else 0.98 * avg + 0.02 * loss.item()
        if step % 150 == 0:
            print(f"step {step:5d}  bpr {avg:.4f}  hit@200 {hit_rate(model, likes):.3f}")
