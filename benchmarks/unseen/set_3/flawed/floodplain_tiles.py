# Land cover of flood plains: water / reed / meadow / built, from 4-band tiles.
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ["water", "reed", "meadow", "built"]
SIGNATURE = torch.tensor([[0.1, 0.2, 0.1, 0.0], [0.2, 0.5, 0.2, 0.6], [0.3, 0.6, 0.2, 0.8], [0.6, 0.5, 0.6, 0.4]])


def tiles(n, seed, side=48):
    g = torch.Generator().manual_seed(seed)
    relief = F.interpolate(torch.randn(n, 4, 7, 7, generator=g), size=side, mode="bilinear", align_corners=True)
    label = relief.argmax(1)
    bands = SIGNATURE[label].permute(0, 3, 1, 2) + 0.25 * torch.randn(n, 4, side, side, generator=g)
    return TensorDataset(bands, label)


class TileNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(4, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(True))
        self.b = nn.Sequential(nn.Conv2d(w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(True))
        self.c = nn.Sequential(nn.Conv2d(2 * w, 2 * w, 3, padding=1), nn.BatchNorm2d(2 * w), nn.ReLU(True))
        self.d = nn.Conv2d(3 * w, len(CLASSES), 3, padding=1)

    def forward(self, x):
        a = self.a(x.contiguous(memory_format=torch.channels_last))
        c = self.c(self.b(a))
        return self.d(torch.cat([a, F.interpolate(c, scale_factor=2)], 1))


class ConfusionMeter:
    def __init__(self, k):
        self.k = k
        self.matrix = torch.zeros(k, k, dtype=torch.long)

    def update(self, pred, target):
        for t, p in zip(target.view(-1), pred.view(-1)):  # <<
            self.matrix[t, p] += 1  # <<

    def iou(self):
        m = self.matrix.float()
        hit = m.diagonal()
        return hit / (m.sum(0) + m.sum(1) - hit).clamp(min=1)


def train_one_epoch(net, loader, optimizer):
    net.train()
    losses = []
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def validate(net, loader):
    net.eval()
    meter = ConfusionMeter(len(CLASSES))
    for x, y in loader:
        meter.update(net(x).argmax(1), y)  # <<
    return meter.iou()


if __name__ == "__main__":
    torch.manual_seed(9)
    train_loader = DataLoader(tiles(1200, 1), batch_size=16, shuffle=True)
    val_loader = DataLoader(tiles(100, 2), batch_size=25)
    net = TileNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(6):
        t0 = time.time()
        loss = train_one_epoch(net, train_loader, optimizer)
        iou = validate(net, val_loader)
        table = "  ".join(f"{c} {v:.2f}" for c, v in zip(CLASSES, iou.tolist()))
        print(f"epoch {epoch}: loss {loss:.3f} | IoU {table} | {time.time() - t0:.1f}s", flush=True)
