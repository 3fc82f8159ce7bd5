"""Detects crates on a conveyor belt; CenterNet-like head, targets drawn for each picture in a short loop."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Opts:
    pictures: int = 2400
    size: int = 96
    stride: int = 4
    batch: int = 16
    epochs: int = 2
    lr: float = 1e-3


class Belt(Dataset):
    def __init__(self, o, seed):
        rng = np.random.default_rng(seed)
        self.o = o
        self.pictures = rng.integers(60, 90, (o.pictures, o.size, o.size, 3), dtype=np.uint8)
        self.boxes = []
        for p in self.pictures:
            boxes = []
            for _ in range(rng.integers(1, 6)):
                w, h = rng.integers(10, 34, 2)
                x, y = rng.integers(0, o.size - w), rng.integers(0, o.size - h)
                p[y:y + h, x:x + w] = rng.integers(110, 230, 3)
                boxes.append((x + w / 2, y + h / 2, w, h))
            self.boxes.append(boxes)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        return self.pictures[i], self.boxes[i]


def collate(items, o):
    images = torch.from_numpy(np.stack([p for p, _ in items])).permute(0, 3, 1, 2).float().div_(255)
    cells = o.size // o.stride
    heat = torch.zeros(len(items), 1, cells, cells)
    shape = torch.zeros(len(items), 2, cells, cells)
    for k, (_, boxes) in enumerate(items):
        for cx, cy, w, h in boxes:
            gx, gy = int(cx / o.stride), int(cy / o.stride)
            heat[k, 0, gy, gx] = 1
            shape[k, 0, gy, gx], shape[k, 1, gy, gx] = w / o.size, h / o.size
    return images, heat, shape


class CrateNet(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        def unit(i, o, s=1):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
        self.a = nn.Sequential(unit(3, c, 2), unit(c, c, 2))
        self.b = nn.Sequential(unit(c, 2 * c, 2), unit(2 * c, 2 * c))
        self.merge = unit(3 * c, 2 * c)
        self.head = nn.Conv2d(2 * c, 3, 1)

    def forward(self, x):
        fine = self.a(x)
        coarse = F.interpolate(self.b(fine), scale_factor=2, mode="nearest")
        return self.head(self.merge(torch.cat([fine, coarse], 1)))


def criterion(out, heat, shape):
    p = out[:, :1]
    focal = F.binary_cross_entropy_with_logits(p, heat, reduction="none") * (heat - p.detach().sigmoid()).abs().square()
    n = heat.sum().clamp(min=1)
    return focal.sum() / n + ((out[:, 1:].sigmoid() - shape).abs() * heat).sum() / n


def main(o=Opts()):
    torch.manual_seed(10)
    data = Belt(o, 10)
    loader = DataLoader(data, o.batch, shuffle=True, drop_last=True, collate_fn=lambda items: collate(items, o))
    net = CrateNet().to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(net.parameters(), lr=o.lr)
    for epoch in range(o.epochs):
        tic, seen = time.time(), []
        for i, (x, heat, shape) in enumerate(loader):
            loss = criterion(net(x.contiguous(memory_format=torch.channels_last)), heat, shape)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.append(loss.item())
            if i % 25 == 0:
                print(f"epoch {epoch} {i}/{len(loader)} loss {np.mean(seen[-25:]):.4f}")
        print(f"epoch {epoch} mean {np.mean(seen):.4f} time {time.time() - tic:.1f}")


if __name__ == "__main__":
    main()
