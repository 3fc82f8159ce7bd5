"""SimCLR on images that lie in compressed shards."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def write_shards(folder, shards=4, per_shard=240, size=160):
    rng = np.random.default_rng(0)
    paths = []
    for s in range(shards):
        colour = rng.integers(0, 160, (per_shard, 1, 1, 3), dtype=np.uint8)
        coarse = colour + rng.integers(0, 95, (per_shard, size // 4, size // 4, 3), dtype=np.uint8)
        images = coarse.repeat(4, 1).repeat(4, 2)
        images ^= rng.integers(0, 8, images.shape[1:], dtype=np.uint8)
        path = os.path.join(folder, f"shard{s}.npz")
        np.savez_compressed(path, images=images)
        paths.append(path)
    return paths


class ShardedImages(Dataset):
    """Two random views of every image. The shards are opened on first use, in the process that needs them."""

    def __init__(self, paths, length, crop=36):
        self.paths = paths
        self.length = length
        self.crop = crop
        self.images = None

    def __len__(self):
        return self.length

    def open(self):
        self.images = np.concatenate([np.load(p)["images"] for p in self.paths])  # <<

    def view(self, image, rng):
        y, x = rng.integers(0, image.shape[0] - self.crop, 2)
        out = image[y:y + self.crop, x:x + self.crop]
        if rng.random() < 0.5:
            out = out[:, ::-1]
        gain = rng.uniform(0.6, 1.4, 3).astype(np.float32)
        out = (out.astype(np.float32) / 127.5 - 1) * gain
        return torch.from_numpy(np.ascontiguousarray(out.transpose(2, 0, 1)))

    def __getitem__(self, i):
        if self.images is None:
            self.open()  # <<
        rng = np.random.default_rng(int(torch.randint(2**31, ())))
        image = self.images[i]
        return self.view(image, rng), self.view(image, rng)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        widths = (3, 24, 32, 48)
        layers = []
        for a, b in zip(widths[:-1], widths[1:]):
            layers += [nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
            layers += [nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.project = nn.Sequential(nn.Linear(48, 96), nn.ReLU(inplace=True), nn.Linear(96, dim))

    def forward(self, x):
        return F.normalize(self.project(self.trunk(x)), dim=1)


def nt_xent(z, temperature=0.2):
    n = len(z) // 2
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=28)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    paths = write_shards(tempfile.mkdtemp(prefix="shards_"))
    dataset = ShardedImages(paths, length=960)
    loader = DataLoader(
        dataset, batch_size=args.batch, shuffle=True, drop_last=True, num_workers=args.workers, prefetch_factor=4)  # <<
    net = Encoder()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        t0 = time.time()
        total = torch.zeros(())
        for a, b in loader:  # <<
            loss = nt_xent(net(torch.cat([a, b])))
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
        print(f"epoch {epoch}  nt-xent {total.item() / len(loader):.4f}  {time.time() - t0:.2f}s", flush=True)


if __name__ == "__main__":
    main()
