"""Band gaps of random crystals with a crystal-graph convolutional network."""
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

ELEMENTS, NEIGHBORS, RBF = 20, 10, 24


def make_crystal(rng, chi):
    n = int(rng.integers(10, 30))
    kind = rng.integers(0, ELEMENTS, n)
    frac = rng.random((n, 3))
    delta = frac[:, None] - frac[None]
    delta -= np.round(delta)
    dist = np.linalg.norm(delta, axis=-1) * 8 + 100 * np.eye(n)
    near = np.argsort(dist, 1)[:, :min(NEIGHBORS, n - 1)]
    center = np.repeat(np.arange(n), near.shape[1])
    other = near.ravel()
    d = dist[center, other]
    rbf = np.exp(-((d[:, None] - np.linspace(0.5, 6, RBF)) / 0.25) ** 2).astype(np.float32)
    gap = np.abs(chi[kind[center]] - chi[kind[other]]) * np.exp(-d / 3)
    return {"kind": torch.from_numpy(kind), "center": torch.from_numpy(center), "other": torch.from_numpy(other),
            "rbf": torch.from_numpy(rbf), "gap": float(gap.mean() * 5)}


def batch_graphs(crystals):
    """One big graph without edges between the crystals."""
    offset, centers, others, owner = 0, [], [], []
    for i, c in enumerate(crystals):
        centers.append(c["center"] + offset)
        others.append(c["other"] + offset)
        owner.append(torch.full((len(c["kind"]),), i))
        offset += len(c["kind"])
    return (torch.cat([c["kind"] for c in crystals]), torch.cat(centers), torch.cat(others),
            torch.cat([c["rbf"] for c in crystals]), torch.cat(owner), torch.tensor([c["gap"] for c in crystals]))


class CrystalConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.atoms_center = nn.Linear(dim, 2 * dim)
        self.atoms_other = nn.Linear(dim, 2 * dim, bias=False)
        self.bonds = nn.Linear(RBF, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, center, other, rbf):
        z = self.atoms_center(h).index_select(0, center) + self.atoms_other(h).index_select(0, other) + self.bonds(rbf)
        gate, core = z.chunk(2, 1)
        message = torch.sigmoid(gate) * nn.functional.silu(core)
        return nn.functional.silu(h + self.norm(torch.zeros_like(h).index_add(0, center, message)))


class BandGapNet(nn.Module):
    def __init__(self, dim=48, layers=4):
        super().__init__()
        self.embed = nn.Embedding(ELEMENTS, dim)
        self.convs = nn.ModuleList(CrystalConv(dim) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(dim, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, kind, center, other, rbf, owner, graphs):
        h = self.embed(kind)
        for conv in self.convs:
            h = conv(h, center, other, rbf)
        total = torch.zeros(graphs, h.shape[1]).index_add(0, owner, h)
        size = torch.bincount(owner, minlength=graphs).unsqueeze(1)
        return self.head(total / size).squeeze(1)


def epoch_loop(net, loader, opt=None):
    error, n = 0.0, 0
    for kind, center, other, rbf, owner, gap in loader:
        pred = net(kind, center, other, rbf, owner, len(gap))
        loss = nn.functional.l1_loss(pred, gap)
        if opt:
            opt.zero_grad()
            loss.backward()
            opt.step()
        error += loss.item() * len(gap)
        n += len(gap)
    return error / n


def main():
    torch.manual_seed(14)
    rng = np.random.default_rng(14)
    chi = rng.uniform(0.8, 4.0, ELEMENTS)
    crystals = [make_crystal(rng, chi) for _ in range(2600)]
    train = DataLoader(crystals[:2200], batch_size=32, shuffle=True, collate_fn=batch_graphs)
    test = DataLoader(crystals[2200:], batch_size=100, collate_fn=batch_graphs)
    net = BandGapNet()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(8):
        t0 = time.time()
        mae = epoch_loop(net.train(), train, opt)
        net.eval()
        with torch.no_grad():
            test_mae = epoch_loop(net, test)
        print(f"epoch {epoch}  train MAE {mae:.3f} eV  test MAE {test_mae:.3f} eV  {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
