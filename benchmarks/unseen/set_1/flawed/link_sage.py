"""Link prediction with a two-layer GraphSAGE on a synthetic co-authorship graph."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


# ---- a small metrics package ------------------------------------------------
class Metric:
    def __init__(self):
        self.reset()

    def reset(self):
        self.state = []

    def update(self, *values):
        self.state.append(values)

    def compute(self):
        raise NotImplementedError

    def __call__(self, *values):
        self.update(*values)
        return self.compute()  # <<


class MeanMetric(Metric):
    def compute(self):
        return sum(float(v[0]) for v in self.state) / max(1, len(self.state))


class AUROC(Metric):
    """Area under the ROC curve from ranks, over everything since the last reset."""

    def compute(self):
        scores = np.concatenate([s.numpy() for s, _ in self.state])  # <<
        labels = np.concatenate([y.numpy() for _, y in self.state])  # <<
        ranks = np.empty(len(scores))
        ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)  # <<
        positive = labels > 0.5
        n_pos, n_neg = positive.sum(), (~positive).sum()
        return float((ranks[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


class Collection:
    def __init__(self, **metrics):
        self.metrics = metrics

    def track(self, **inputs):
        return {name: self.metrics[name](*values) for name, values in inputs.items()}  # <<

    def finish(self):
        out = {name: m.compute() for name, m in self.metrics.items()}
        for m in self.metrics.values():
            m.reset()
        return out


# ---- graph ------------------------------------------------------------------
def coauthors(nodes, edges, communities, seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, communities, nodes)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(communities + 1))
    a = rng.integers(0, nodes, edges)
    ga = group[a]
    span = starts[ga + 1] - starts[ga]
    inside = order[starts[ga] + (rng.random(edges) * span).astype(int)]
    b = np.where(rng.random(edges) < 0.8, inside, rng.integers(0, nodes, edges))
    feats = rng.normal(size=(communities, 32))[group] * 0.4 + rng.normal(size=(nodes, 32))
    return torch.from_numpy(np.stack([a, b])), torch.from_numpy(feats.astype(np.float32))


def neighbour_table(edge, nodes, fanout, rng):
    src, dst = torch.cat([edge, edge.flip(0)], 1).numpy()
    order = rng.permutation(len(src))
    src, dst = src[order], dst[order]
    by = np.argsort(dst, kind="stable")
    src, dst = src[by], dst[by]
    place = np.arange(len(dst)) - np.searchsorted(dst, dst)
    table = np.tile(np.arange(nodes)[:, None], (1, fanout))
    keep = place < fanout
    table[dst[keep], place[keep]] = src[keep]
    return torch.from_numpy(table)


class Sage(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.self1, self.neigh1 = nn.Linear(features, width), nn.Linear(features, width)
        self.self2, self.neigh2 = nn.Linear(width, width), nn.Linear(width, width)

    def layer1(self, x, table, nodes):
        return F.relu(self.self1(x[nodes]) + self.neigh1(x[table[nodes]].mean(-2)))

    def forward(self, x, table, nodes):
        own = self.layer1(x, table, nodes)
        around = self.layer1(x, table, table[nodes])
        return F.normalize(self.self2(own) + self.neigh2(around.mean(-2)), dim=-1)


def fit(args):
    torch.manual_seed(5)
    rng = np.random.default_rng(6)
    nodes = 20_000
    edge, x = coauthors(nodes, 150_000, 50, seed=8)
    table = neighbour_table(edge, nodes, 4, rng)
    model = Sage(32, 48)
    scale = nn.Parameter(torch.tensor(5.0))
    opt = torch.optim.Adam([*model.parameters(), scale], lr=2e-3)
    metrics = Collection(loss=MeanMetric(), auc=AUROC())
    for epoch in range(args.epochs):
        clock = time.perf_counter()
        trace = []
        for index in torch.randperm(edge.shape[1])[: 70 * args.batch].split(args.batch):
            pos = edge[:, index]
            fake = torch.randint(nodes, (args.batch,))
            z = model(x, table, torch.cat([pos[0], pos[1], fake]))
            za, zb, zf = z.chunk(3)
            logits = scale * torch.cat([(za * zb).sum(-1), (za * zf).sum(-1)])
            labels = torch.cat([torch.ones(args.batch), torch.zeros(args.batch)])
            loss = F.binary_cross_entropy_with_logits(logits, labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            trace.append(metrics.track(loss=(loss.detach(),), auc=(logits.detach(), labels)))  # <<
        summary = metrics.finish()
        print(f"epoch {epoch}: loss {summary['loss']:.4f} auc {summary['auc']:.4f} {time.perf_counter() - clock:.2f}s")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=14)
    ap.add_argument("--batch", type=int, default=2048)
    fit(ap.parse_args())
