"""Storm intensity from satellite-like patches, trained with stochastic weight averaging."""
import time

import torch
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, Dataset


class CyclonePatches(Dataset):
    def __init__(self, n, seed, side=32):
        g = torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, side)
        yy, xx = torch.meshgrid(ax, ax, indexing="ij")
        wind = torch.rand(n, generator=g)
        cx, cy = (torch.rand(2, n, 1, 1, generator=g) - 0.5) * 0.6
        r = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()
        phi = torch.atan2(yy - cy, xx - cx)
        w = wind[:, None, None]
        cloud = torch.exp(-r * (2 - w)) * (1 + 0.5 * torch.cos(2 * phi + 8 * w * r))
        eye = torch.exp(-(r / 0.08) ** 2) * w
        ir = cloud - eye + 0.2 * torch.randn(n, side, side, generator=g)
        vapour = cloud.roll(2, -1) + 0.3 * torch.randn(n, side, side, generator=g)
        self.x = torch.stack([ir, vapour], 1)
        self.y = 20 + 60 * wind

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def stage(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
        nn.Conv2d(o, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
    )


class IntensityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(stage(2, 16), stage(16, 32), stage(32, 64))
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x.contiguous(memory_format=torch.channels_last)).mean((2, 3))
        return 50 + 20 * self.out(h).squeeze(-1)


@torch.no_grad()
def rmse(model, loader):
    model.eval()
    se = sum(((model(x) - y) ** 2).sum().item() for x, y in loader)
    return (se / len(loader.dataset)) ** 0.5


def main(epochs=12, swa_from=1):
    torch.manual_seed(31)
    train = DataLoader(CyclonePatches(2560, 0), batch_size=32, shuffle=True)
    valid = DataLoader(CyclonePatches(256, 1), batch_size=64)
    model = IntensityNet().to(memory_format=torch.channels_last)
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    flat = SWALR(optimizer, swa_lr=0.005, anneal_epochs=3)
    lossf = nn.SmoothL1Loss()
    for epoch in range(epochs):
        t0 = time.time()
        model.train()
        total = 0.0
        for x, y in train:
            loss = lossf(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            total += loss.item()
        if epoch >= swa_from:
            averaged.update_parameters(model)
            flat.step()
            update_bn(train, averaged)  # <<
        print(f"epoch {epoch:2d} loss {total / len(train):.3f} rmse {rmse(model, valid):.2f} kt  {time.time() - t0:.1f}s", flush=True)
    print(f"averaged weights: rmse {rmse(averaged, valid):.2f} kt")


if __name__ == "__main__":
    main()
