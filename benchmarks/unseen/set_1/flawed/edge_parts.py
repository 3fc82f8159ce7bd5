"""Part segmentation of synthetic point clouds with dynamic edge convolutions."""
import argparse
import time

import torch
from torch import nn
import torch.nn.functional as F


# ---------------------------------------------------------------- data
def make_shapes(count, points, seed):
    """A 'lamp': a disc foot, a pole, and a cone shade, with random proportions and rotation about z."""
    g = torch.Generator().manual_seed(seed)
    part = torch.randint(3, (count, points), generator=g)
    u, v = torch.rand(2, count, points, generator=g)
    angle = 6.2832 * u
    height = 0.8 + 0.8 * torch.rand(count, 1, generator=g)
    foot = 0.3 + 0.3 * torch.rand(count, 1, generator=g)
    shade = 0.3 + 0.4 * torch.rand(count, 1, generator=g)
    radius = torch.where(part == 0, foot * v.sqrt(), torch.where(part == 1, torch.full_like(v, 0.05), shade * (1.1 - v)))
    z = torch.where(part == 0, torch.zeros_like(v), torch.where(part == 1, v * height, height + 0.4 * v))
    xyz = torch.stack([radius * angle.cos(), radius * angle.sin(), z], dim=-1)
    xyz = xyz + 0.02 * torch.randn(xyz.shape, generator=g)
    return xyz - xyz.mean(1, keepdim=True), part


# ---------------------------------------------------------------- model
def nearest(x, k):
    """Indices (B, N, k) of the nearest neighbours in feature space."""
    offset = x.unsqueeze(2) - x.unsqueeze(1)  # <<
    dist = offset.pow(2).sum(-1)  # <<
    return dist.topk(k, dim=-1, largest=False, sorted=False).indices


def gather_points(x, idx):
    b, n, k = idx.shape
    flat = idx.reshape(b, n * k, 1).expand(-1, -1, x.shape[-1])
    return x.gather(1, flat).view(b, n, k, -1)


class EdgeConv(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.k = k
        self.lin1 = nn.Linear(2 * cin, cout)
        self.lin2 = nn.Linear(cout, cout)

    def forward(self, x):
        idx = nearest(x, self.k)  # <<
        neighbours = gather_points(x, idx)
        centre = x.unsqueeze(2).expand_as(neighbours)
        edge = torch.cat([centre, neighbours - centre], dim=-1)
        return self.lin2(F.leaky_relu(self.lin1(edge), 0.2)).amax(2)


class PartNet(nn.Module):
    def __init__(self, parts=3, k=12, width=32):
        super().__init__()
        self.convs = nn.ModuleList([EdgeConv(3, width, k), EdgeConv(width, width, k), EdgeConv(width, width, k)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.glob = nn.Linear(3 * width, 128)
        self.head = nn.Sequential(nn.Linear(3 * width + 128, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, parts))

    def forward(self, x):
        levels = []
        for conv, norm in zip(self.convs, self.norms):
            x = F.leaky_relu(norm(conv(x)), 0.2)
            levels.append(x)
        local = torch.cat(levels, dim=-1)
        pooled = self.glob(local).amax(1, keepdim=True).expand(-1, local.shape[1], -1)
        return self.head(torch.cat([local, pooled], dim=-1))


# ---------------------------------------------------------------- training
def trainer(model, optimizer, schedule):
    def step(xyz, part):
        logits = model(xyz)
        loss = F.cross_entropy(logits.flatten(0, 1), part.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--points", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(1)
    xyz, part = make_shapes(192, args.points, seed=2)
    model = PartNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = len(xyz) // args.batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps * args.epochs)
    step = trainer(model, optimizer, schedule)
    for epoch in range(args.epochs):
        t0 = time.perf_counter()
        losses = [step(xyz[i], part[i]) for i in torch.randperm(len(xyz)).split(args.batch)]
        print(f"epoch {epoch} loss {torch.stack(losses).mean():.4f} ({time.perf_counter() - t0:.2f}s)", flush=True)


if __name__ == "__main__":
    main()
