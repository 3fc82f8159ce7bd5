# 2.5D nodule segmentation: three neighbouring CT slices in, one mask out.
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    n_patients: int = 44
    depth: int = 32
    size: int = 64
    batch_size: int = 16
    epochs: int = 3
    lr: float = 1e-3
    seed: int = 11


def write_study(folder: Path, cfg: Config):
    """One .npz per patient, volume (int16, HU) and mask (uint8)."""
    rng = np.random.default_rng(cfg.seed)
    zz, yy, xx = np.mgrid[:cfg.depth, :cfg.size, :cfg.size].astype(np.float32)
    for p in range(cfg.n_patients):
        volume = rng.normal(-750, 60, zz.shape).astype(np.float32)
        mask = np.zeros(zz.shape, np.uint8)
        for _ in range(rng.integers(3, 7)):
            c = rng.uniform([4, 10, 10], [cfg.depth - 4, cfg.size - 10, cfg.size - 10])
            r = rng.uniform(3, 8)
            ball = ((zz - c[0]) * 1.5) ** 2 + (yy - c[1]) ** 2 + (xx - c[2]) ** 2 < r * r
            volume[ball] += rng.uniform(500, 800)
            mask[ball] = 1
        np.savez_compressed(folder / f"patient_{p:03d}.npz", volume=volume.astype(np.int16), mask=mask)


class SliceDataset(Dataset):
    def __init__(self, files, depth, augment):
        self.files = files
        self.index = [(f, z) for f in range(len(files)) for z in range(1, depth - 1)]
        self.augment = augment

    def __len__(self):
        return len(self.index)

    def load(self, f):
        with np.load(self.files[f]) as npz:  # <<
            return npz["volume"], npz["mask"]  # <<

    def __getitem__(self, i):
        f, z = self.index[i]
        volume, mask = self.load(f)  # <<
        x = torch.from_numpy(volume[z - 1:z + 2].astype(np.float32))
        x = ((x + 1000.0) / 1400.0).clamp(0, 1)
        y = torch.from_numpy(mask[z].astype(np.float32))[None]
        if self.augment and torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return x, y


class Block(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, base=12):
        super().__init__()
        self.d1, self.d2, self.d3 = Block(3, base), Block(base, base * 2), Block(base * 2, base * 4)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(base * 4, base * 2, 2, 2)
        self.u2 = Block(base * 4, base * 2)
        self.up1 = nn.ConvTranspose2d(base * 2, base, 2, 2)
        self.u1 = Block(base * 2, base)
        self.out = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        c = self.d3(self.pool(b))
        b = self.u2(torch.cat([b, self.up2(c)], 1))
        a = self.u1(torch.cat([a, self.up1(b)], 1))
        return self.out(a)


def dice_bce(logits, target):
    bce = nn.functional.binary_cross_entropy_with_logits(logits, target)
    p = logits.sigmoid()
    inter = (p * target).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
    return bce + dice.mean()


def run(cfg: Config):
    torch.manual_seed(cfg.seed)
    folder = Path(tempfile.mkdtemp(prefix="lung_ct_"))
    write_study(folder, cfg)
    files = sorted(folder.glob("*.npz"))
    n_val = 6
    train = DataLoader(SliceDataset(files[n_val:], cfg.depth, True), cfg.batch_size, shuffle=True, drop_last=True)
    val = DataLoader(SliceDataset(files[:n_val], cfg.depth, False), cfg.batch_size)
    net = UNet().to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)

    for epoch in range(1, cfg.epochs + 1):
        start = time.perf_counter()
        net.train()
        running = 0.0
        for step, (x, y) in enumerate(train, 1):
            x = x.to(memory_format=torch.channels_last)
            opt.zero_grad(set_to_none=True)
            loss = dice_bce(net(x), y)
            loss.backward()
            opt.step()
            running += loss.item()
            if step % 25 == 0:
                print(f"  [{epoch}] {step}/{len(train)} loss {running / step:.4f}", flush=True)
        net.eval()
        inter = union = 0.0
        with torch.inference_mode():
            for x, y in val:
                pred = net(x.to(memory_format=torch.channels_last)) > 0
                inter += (pred * y).sum().item() * 2
                union += pred.sum().item() + y.sum().item()
        print(f"epoch {epoch}: train {running / len(train):.4f}, val dice {inter / max(union, 1):.4f}, "
              f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    run(Config())
