# Part segmentation of synthetic lidar scans with dynamic graph convolutions.
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    scans: int = 640
    points: int = 192
    k: int = 10
    batch: int = 8
    width: int = 64
    parts: int = 4
    epochs: int = 2
    lr: float = 1e-3


def make_scans(cfg, seed):
    g = torch.Generator().manual_seed(seed)
    n, p = cfg.scans, cfg.points
    part = torch.randint(0, cfg.parts, (n, p), generator=g)
    base = torch.randn(n, p, 3, generator=g)
    sphere = F.normalize(base, dim=-1)
    pole = base * torch.tensor([0.05, 0.05, 1.0])
    plane = base * torch.tensor([1.2, 1.2, 0.02]) - torch.tensor([0.0, 0.0, 1.0])
    blob = base * 0.25 + torch.tensor([1.0, 0.0, 0.5])
    stacked = torch.stack([sphere, pole, plane, blob], dim=0)
    pts = torch.gather(stacked, 0, part[None, :, :, None].expand(1, n, p, 3))[0]
    theta = torch.rand(n, generator=g) * 6.283
    c, s = theta.cos(), theta.sin()
    rot = torch.zeros(n, 3, 3)
    rot[:, 0, 0], rot[:, 0, 1], rot[:, 1, 0], rot[:, 1, 1], rot[:, 2, 2] = c, -s, s, c, 1.0
    return pts @ rot, part


@torch.no_grad()
def neighbours(x, k):
    # x: (B, N, C) -> (B, N, k) indices of the closest points in feature space
    diff = x.unsqueeze(2) - x.unsqueeze(1)  # <<
    dist = (diff ** 2).sum(-1)  # <<
    return dist.topk(k, largest=False).indices


class EdgeConv(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.k = k
        self.lin = nn.Linear(2 * cin, cout)

    def forward(self, x):
        b, n, c = x.shape
        idx = neighbours(x, self.k)  # <<
        flat = (idx + torch.arange(b).view(b, 1, 1) * n).reshape(-1)
        nb = x.reshape(b * n, c).index_select(0, flat).view(b, n, self.k, c)
        centre = x.unsqueeze(2).expand_as(nb)
        e = F.leaky_relu(self.lin(torch.cat([centre, nb - centre], -1)), 0.2)
        return e.amax(dim=2)


class PartNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.c1 = EdgeConv(3, w, cfg.k)
        self.c2 = EdgeConv(w, w, cfg.k)
        self.c3 = EdgeConv(w, w, cfg.k)
        self.head = nn.Sequential(nn.Linear(3 * w + 2 * w, 128), nn.ReLU(), nn.Linear(128, cfg.parts))
        self.glob = nn.Linear(3 * w, 2 * w)

    def forward(self, pts):
        a = self.c1(pts)
        b = self.c2(a)
        c = self.c3(b)
        f = torch.cat([a, b, c], -1)
        g = self.glob(f).amax(dim=1, keepdim=True).expand(-1, f.size(1), -1)
        return self.head(torch.cat([f, g], -1))


def run(cfg=Config()):
    torch.manual_seed(0)
    pts, part = make_scans(cfg, 3)
    test_pts, test_part = make_scans(Config(scans=64), 4)
    net = PartNet(cfg)
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        t0 = time.time()
        order = torch.randperm(cfg.scans)
        for it, sel in enumerate(order.split(cfg.batch)):
            logits = net(pts[sel])
            loss = F.cross_entropy(logits.flatten(0, 1), part[sel].flatten())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if it % 20 == 0:
                print(f"[{epoch}:{it:03d}] loss={loss.item():.4f}", flush=True)
        with torch.no_grad():
            ok = sum((net(x).argmax(-1) == y).float().sum().item() for x, y in zip(test_pts.split(8), test_part.split(8)))
        print(f"epoch {epoch} point acc {ok / test_part.numel():.3f} in {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    run()
