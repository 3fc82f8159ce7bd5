"""Airway branch labelling from segmented CT: classify point clouds of bronchi (8 branch families).

Edge convolutions over the spatial k-nn graph, residual, max pool.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_clouds(n, n_points, rng):
    """Y-shaped tubes with family dependent branching angle / taper."""
    fam = rng.integers(0, 8, n)
    t = rng.uniform(0, 1, (n, n_points))
    side = rng.choice([-1.0, 1.0], (n, n_points))
    angle = (0.3 + 0.12 * fam)[:, None] * side
    bend = np.where(t > 0.45, t - 0.45, 0)
    x = bend * np.sin(angle) * 2
    z = np.where(t > 0.45, 0.45 + bend * np.cos(angle), t)
    r = 0.12 * (1 - t * (0.3 + 0.05 * (fam % 4))[:, None])
    phi = rng.uniform(0, 2 * np.pi, (n, n_points))
    pts = np.stack([x + r * np.cos(phi), r * np.sin(phi), z], -1)
    return torch.tensor(pts, dtype=torch.float32), torch.tensor(fam)


def random_pose(pts):
    a = torch.rand(len(pts)) * 2 * torch.pi
    c, s, o, l = a.cos(), a.sin(), torch.zeros_like(a), torch.ones_like(a)
    rot = torch.stack([c, -s, o, s, c, o, o, o, l], -1).view(-1, 3, 3)
    return pts @ rot + 0.01 * torch.randn_like(pts)


def knn(pos, k):
    dist = torch.cdist(pos, pos)  # <<
    return dist.topk(k + 1, largest=False).indices[..., 1:]  # <<


def gather_neighbours(x, idx):
    b, n, k = idx.shape
    flat = idx.reshape(b, n * k, 1).expand(-1, -1, x.shape[-1])
    return x.gather(1, flat).view(b, n, k, -1)


class EdgeConv(nn.Module):
    def __init__(self, c_in, c_out, k):
        super().__init__()
        self.k = k
        self.mlp = nn.Linear(2 * c_in, c_out)

    def forward(self, x, pos):
        idx = knn(pos, self.k)  # <<
        nb = gather_neighbours(x, idx)
        centre = x.unsqueeze(2).expand_as(nb)
        return F.relu(self.mlp(torch.cat([centre, nb - centre], -1))).amax(2)


class AirwayNet(nn.Module):
    def __init__(self, width=20, k=6, depth=5, n_classes=8):
        super().__init__()
        self.stem = nn.Linear(3, width)
        self.convs = nn.ModuleList(EdgeConv(width, width, k) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, n_classes))

    def forward(self, pts):
        x = self.stem(pts)
        for conv in self.convs:
            x = x + conv(x, pts)  # <<
        return self.head(x.amax(1))


if __name__ == "__main__":
    rng = np.random.default_rng(42)
    torch.manual_seed(42)
    pts, fam = make_clouds(320, 256, rng)
    val_pts, val_fam = make_clouds(64, 256, rng)
    net = AirwayNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    batch = 8

    for epoch in range(10):
        net.train()
        order = torch.randperm(len(pts))
        tot = 0.0
        for i in range(0, len(order), batch):
            sel = order[i:i + batch]
            logits = net(random_pose(pts[sel]))
            loss = F.cross_entropy(logits, fam[sel])
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item() * len(sel)
        net.eval()
        with torch.no_grad():
            acc = (net(val_pts).argmax(1) == val_fam).float().mean().item()
        print(f"epoch {epoch}: loss {tot / len(pts):.4f}, val acc {acc:.3f}")
