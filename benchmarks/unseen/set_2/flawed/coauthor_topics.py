# Two-layer GCN on a synthetic co-authorship network (full batch, semi-supervised).
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

N, TOPICS, WORDS = 2400, 8, 800
rng = np.random.default_rng(17)
torch.manual_seed(17)

# authors publish mostly within their topic
topic = rng.integers(0, TOPICS, N)
members = [np.flatnonzero(topic == t) for t in range(TOPICS)]
src, dst = [], []
for a in range(N):
    k = rng.integers(2, 6)
    inside = rng.random(k) < 0.8
    for same in inside:
        b = rng.choice(members[topic[a]]) if same else rng.integers(N)
        if a != b:
            src += [a, b]
            dst += [b, a]
pairs = np.unique(np.stack([src + list(range(N)), dst + list(range(N))]), axis=1)
edges = torch.from_numpy(pairs)

# bag of words
vocab = rng.random((TOPICS, WORDS)) < 0.1
words = rng.random((N, WORDS)) < (0.02 + 0.05 * vocab[topic])
x = torch.from_numpy(words.astype(np.float32))
x = x / x.sum(1, keepdim=True).clamp(min=1)
y = torch.from_numpy(topic)
perm = torch.from_numpy(rng.permutation(N))
train_rows, val_rows = perm[:400], perm[400:1400]


def normalized_adjacency(edges, n):
    """D^-1/2 (A + I) D^-1/2"""
    deg = torch.bincount(edges[0], minlength=n).float()
    w = deg[edges[0]].rsqrt() * deg[edges[1]].rsqrt()
    adj = torch.zeros(n, n)  # <<
    adj[edges[0], edges[1]] = w  # <<
    return adj


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o)

    def forward(self, adj, h):
        return adj @ self.lin(h)  # <<


class GCN(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.c1 = GraphConv(WORDS, hidden)
        self.c2 = GraphConv(hidden, hidden)
        self.c3 = GraphConv(hidden, TOPICS)

    def forward(self, adj, x):
        h = F.dropout(F.relu(self.c1(adj, x)), 0.5, self.training)
        h = F.dropout(F.relu(self.c2(adj, h)), 0.5, self.training)
        return self.c3(adj, h)


adj = normalized_adjacency(edges, N)  # <<
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

t0 = time.time()
for epoch in range(1, 321):
    model.train()
    optimizer.zero_grad()
    out = model(adj, x)
    loss = F.cross_entropy(out[train_rows], y[train_rows])
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        model.eval()
        with torch.no_grad():
            pred = model(adj, x).argmax(1)
        acc = (pred[val_rows] == y[val_rows]).float().mean().item()
        print(f"{epoch:4d}  loss {loss.item():.3f}  val acc {acc:.3f}  {time.time() - t0:.1f}s")
