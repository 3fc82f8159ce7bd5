"""Band gap regression on periodic crystals with a hand-written SchNet-like network."""
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

CUTOFF = 0.42


def crystal(gen):
    n = int(torch.randint(8, 17, (1,), generator=gen))
    frac = torch.rand(n, 3, generator=gen)
    kind = torch.randint(0, 10, (n,), generator=gen)
    delta = frac[:, None] - frac[None]
    delta = delta - delta.round()
    dist = delta.norm(dim=-1) + torch.eye(n)
    src, dst = torch.nonzero(dist < CUTOFF, as_tuple=True)
    d = dist[src, dst]
    gap = ((kind[src] - kind[dst]).abs().float() * torch.exp(-8 * d)).sum() / n
    return kind, torch.stack([src, dst]), d, gap


def collate(items):
    kinds, edges, dists, owner, gaps, base = [], [], [], [], [], 0
    for i, (kind, edge, d, gap) in enumerate(items):
        kinds.append(kind)
        edges.append(edge + base)
        dists.append(d)
        owner.append(torch.full((len(kind),), i))
        gaps.append(gap)
        base += len(kind)
    return torch.cat(kinds), torch.cat(edges, 1), torch.cat(dists), torch.cat(owner), torch.stack(gaps)


class Interaction(nn.Module):
    def __init__(self, dim, rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(rbf, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.inp = nn.Linear(dim, dim, bias=False)
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h, edges, rbf, envelope):
        w = self.filter(rbf) * envelope
        msg = self.inp(h).index_select(0, edges[0]) * w
        agg = torch.zeros_like(h).index_add(0, edges[1], msg)
        return h + self.out(agg)


class BandNet(nn.Module):
    def __init__(self, dim=128, rbf=32, depth=3):
        super().__init__()
        self.embed = nn.Embedding(10, dim)
        self.register_buffer("centres", torch.linspace(0, CUTOFF, rbf))
        self.layers = nn.ModuleList(Interaction(dim, rbf) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(dim, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, kind, edges, d, owner, n):
        rbf = torch.exp(-((d[:, None] - self.centres) / 0.02).square())
        envelope = (0.5 * (torch.cos(math.pi * d / CUTOFF) + 1)).unsqueeze(1)
        h = self.embed(kind)
        for layer in self.layers:
            h = layer(h, edges, rbf, envelope)
        per_atom = self.head(h).squeeze(-1)
        return torch.zeros(n).index_add(0, owner, per_atom)


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, n):
        self.total += value * n
        self.count += n

    @property
    def mean(self):
        return self.total / self.count


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    data = [crystal(gen) for _ in range(4400)]
    train = DataLoader(data[:4000], batch_size=64, shuffle=True, collate_fn=collate)
    test = DataLoader(data[4000:], batch_size=100, collate_fn=collate)
    net = BandNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(10):
        t0, meter = time.time(), Meter()
        for kind, edges, d, owner, gap in train:
            loss = (net(kind, edges, d, owner, len(gap)) - gap).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.add(loss.item(), len(gap))
        with torch.no_grad():
            held = Meter()
            for kind, edges, d, owner, gap in test:
                held.add((net(kind, edges, d, owner, len(gap)) - gap).abs().mean().item(), len(gap))
        print(f"epoch {epoch} train {meter.mean:.4f} test {held.mean:.4f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
