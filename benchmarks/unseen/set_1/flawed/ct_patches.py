"""Organ segmentation on CT-like volumes: a small 3D U-Net trained on random patches."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


# --------------------------------------------------------------------------- data
def make_scan(rng, shape=(64, 104, 104)):
    """One scan in 'Hounsfield units' with a bright organ and its mask."""
    d, h, w = shape
    zz, yy, xx = np.ogrid[:d, :h, :w]
    cz, cy, cx = rng.uniform(0.35, 0.65, 3) * shape
    rz, ry, rx = rng.uniform(0.18, 0.32, 3) * shape
    mask = ((zz - cz) / rz) ** 2 + ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1.0
    coarse = rng.normal(0, 120, (d // 8, h // 8, w // 8))
    scan = np.repeat(np.repeat(np.repeat(coarse, 8, 0), 8, 1), 8, 2)
    scan = scan + rng.normal(0, 60, shape) + 140 * mask
    # some metal artefacts
    hot = rng.integers(0, scan.size, 200)
    scan.reshape(-1)[hot] = 3000
    return scan.astype(np.float32), mask


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, image, mask, rng):
        for step in self.steps:
            image, mask = step(image, mask, rng)
        return image, mask


class ClipToRange:
    """Robust window: clip to the given percentiles, scale to [0, 1]."""

    def __init__(self, low=0.5, high=99.5):
        self.q = (low, high)

    def __call__(self, image, mask, rng):
        lo, hi = np.percentile(image, self.q)  # <<
        image = np.clip(image, lo, hi)  # <<
        return (image - lo) / (hi - lo + 1e-6), mask  # <<


class RandomPatch:
    def __init__(self, size):
        self.size = size

    def __call__(self, image, mask, rng):
        z, y, x = (int(rng.integers(0, n - self.size + 1)) for n in image.shape)
        s = self.size
        return image[z:z + s, y:y + s, x:x + s], mask[z:z + s, y:y + s, x:x + s]


class RandomFlip:
    def __call__(self, image, mask, rng):
        for axis in range(3):
            if rng.random() < 0.5:
                image, mask = np.flip(image, axis), np.flip(mask, axis)
        return image, mask


class PatchDataset(Dataset):
    def __init__(self, scans, masks, patches_per_scan, transform, seed=0):
        self.scans = scans
        self.masks = masks
        self.patches_per_scan = patches_per_scan
        self.transform = transform
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.scans) * self.patches_per_scan

    def __getitem__(self, i):
        k = i % len(self.scans)
        image, mask = self.transform(self.scans[k], self.masks[k], self.rng)  # <<
        image = torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32))[None]
        mask = torch.from_numpy(np.ascontiguousarray(mask)).long()
        return image, mask


# --------------------------------------------------------------------------- model
def block(cin, cout):
    return nn.Sequential(
        nn.Conv3d(cin, cout, 3, padding=1, bias=False), nn.InstanceNorm3d(cout, affine=True), nn.LeakyReLU(0.01, inplace=True),
    )


class UNet3d(nn.Module):
    def __init__(self, width=8, classes=2):
        super().__init__()
        self.enc1 = block(1, width)
        self.enc2 = block(width, width * 2)
        self.mid = block(width * 2, width * 4)
        self.dec2 = block(width * 4 + width * 2, width * 2)
        self.dec1 = block(width * 2 + width, width)
        self.head = nn.Conv3d(width, classes, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool3d(a, 2))
        c = self.mid(F.max_pool3d(b, 2))
        b = self.dec2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.dec1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)


def dice_ce(logits, target):
    ce = F.cross_entropy(logits, target)
    p = logits.softmax(1)[:, 1]
    t = (target == 1).float()
    dice = 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
    return ce + dice


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=2)
    ap.add_argument("--patch", type=int, default=24)
    args = ap.parse_args()

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    scans, masks = zip(*[make_scan(rng) for _ in range(12)])

    transform = Compose([ClipToRange(), RandomPatch(args.patch), RandomFlip()])
    train = PatchDataset(scans, masks, patches_per_scan=10, transform=transform)
    loader = DataLoader(train, batch_size=args.batch, shuffle=True)

    net = UNet3d()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)

    for epoch in range(args.epochs):
        started = time.perf_counter()
        total = 0.0
        for image, mask in loader:
            loss = dice_ce(net(image), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch}  loss {total / len(loader):.4f}  {time.perf_counter() - started:.2f}s", flush=True)


if __name__ == "__main__":
    main()
