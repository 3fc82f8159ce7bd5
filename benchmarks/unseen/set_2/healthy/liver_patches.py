"""Liver segmentation on 3-D patches. Random patch, flips, 90-degree turns, intensity jitter and noise for every sample."""
import argparse
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def abdomen(rng, shape):
    z, y, x = np.ogrid[-1:1:shape[0] * 1j, -1:1:shape[1] * 1j, -1:1:shape[2] * 1j]
    body = (x / 0.95) ** 2 + (y / 0.8) ** 2 < 1
    c = np.array([0.0, -0.1, -0.35]) + rng.normal(0, 0.06, 3)
    r = np.array([0.55, 0.35, 0.45]) * rng.uniform(0.85, 1.15, 3)
    liver = ((z - c[0]) / r[0]) ** 2 + ((y - c[1]) / r[1]) ** 2 + ((x - c[2]) / r[2]) ** 2 < 1
    spine = (x ** 2 + (y - 0.55) ** 2 < 0.02) & (z > -2)
    hu = np.full(shape, -1000.0, np.float32)
    hu[np.broadcast_to(body, shape)] = 40
    hu[liver] = 95
    hu[np.broadcast_to(spine, shape)] = 400
    return (hu + rng.normal(0, 25, shape)).astype(np.int16), liver


class RandomPatches(Dataset):
    def __init__(self, n_volumes, per_epoch, patch, seed, augment=True):
        rng = np.random.default_rng(seed)
        pairs = [abdomen(rng, (48, 72, 72)) for _ in range(n_volumes)]
        self.volumes = torch.from_numpy(np.stack([v for v, _ in pairs]))
        self.livers = torch.from_numpy(np.stack([m for _, m in pairs]))
        self.per_epoch, self.patch, self.augment, self.seed = per_epoch, patch, augment, seed

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, i):
        g = None if self.augment else torch.Generator().manual_seed(self.seed + i)
        k = int(torch.randint(len(self.volumes), (1,), generator=g))
        p = self.patch
        a, b, c = (int(torch.randint(n - p + 1, (1,), generator=g)) for n in self.volumes.shape[1:])
        x = self.volumes[k, a:a + p, b:b + p, c:c + p].float().clamp(-200, 300).add(200).div(500)
        y = self.livers[k, a:a + p, b:b + p, c:c + p]
        if self.augment:
            dims = [d for d in range(3) if torch.rand(()) < 0.5]
            x, y = x.flip(dims), y.flip(dims)
            turns = int(torch.randint(4, (1,)))
            x, y = x.rot90(turns, (1, 2)), y.rot90(turns, (1, 2))
            x = x.clamp(min=1e-4).pow(float(torch.empty(()).uniform_(0.7, 1.5)))
            x = x * float(torch.empty(()).uniform_(0.8, 1.2)) + float(torch.empty(()).uniform_(-0.1, 0.1))
            x = x + torch.randn(x.shape) * 0.03
        return x[None].contiguous(), y[None].float().contiguous()


class Unit(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.a, self.b = nn.Conv3d(i, o, 3, padding=1, bias=False), nn.Conv3d(o, o, 3, padding=1, bias=False)
        self.na, self.nb = nn.BatchNorm3d(o), nn.BatchNorm3d(o)

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x)), inplace=True))), inplace=True)


class VNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.e1, self.e2, self.e3 = Unit(1, w), Unit(w, 2 * w), Unit(2 * w, 4 * w)
        self.up2, self.up1 = nn.ConvTranspose3d(4 * w, 2 * w, 2, 2), nn.ConvTranspose3d(2 * w, w, 2, 2)
        self.d2, self.d1 = Unit(4 * w, 2 * w), Unit(2 * w, w)
        self.head = nn.Conv3d(w, 1, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool3d(a, 2))
        c = self.e3(F.max_pool3d(b, 2))
        b = self.d2(torch.cat([b, self.up2(c)], 1))
        return self.head(self.d1(torch.cat([a, self.up1(b)], 1)))


def soft_dice(logits, y):
    p = logits.sigmoid()
    num = 2 * (p * y).sum((1, 2, 3, 4)) + 1
    return (1 - num / (p.sum((1, 2, 3, 4)) + y.sum((1, 2, 3, 4)) + 1)).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--patches", type=int, default=200)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--workers", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(0)
    train = DataLoader(RandomPatches(24, args.patches, 32, 1), args.batch, num_workers=args.workers,
                       persistent_workers=args.workers > 0, drop_last=True)
    val = DataLoader(RandomPatches(6, 24, 32, 2, augment=False), 8)
    net = VNet().to(memory_format=torch.channels_last_3d)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        t0, losses = time.time(), []
        net.train()
        for x, y in train:
            x = x.to(memory_format=torch.channels_last_3d)
            out = net(x)
            loss = soft_dice(out, y) + F.binary_cross_entropy_with_logits(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        net.eval()
        with torch.inference_mode():
            d = [1 - soft_dice((net(x.to(memory_format=torch.channels_last_3d)) > 0).float() * 40 - 20, y).item()
                 for x, y in val]
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}, dice {np.mean(d):.4f}, {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
