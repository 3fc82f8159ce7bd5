"""PointNet on compressed scans read from disk; decoding and thinning happen in the loader's workers."""
import argparse
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = 6


def surface(kind, n, rng):
    u, v = rng.random((2, n))
    a = 2 * np.pi * u
    if kind == 0:
        z = 2 * v - 1
        r = np.sqrt(1 - z * z)
        p = np.stack([r * np.cos(a), r * np.sin(a), z], 1)
    elif kind == 1:
        p = np.stack([np.cos(a), np.sin(a), 2 * v - 1], 1)
    elif kind == 2:
        p = np.stack([(1 - v) * np.cos(a), (1 - v) * np.sin(a), 2 * v - 1], 1)
    elif kind == 3:
        b = 2 * np.pi * v
        p = np.stack([(1 + 0.35 * np.cos(b)) * np.cos(a), (1 + 0.35 * np.cos(b)) * np.sin(a), 0.35 * np.sin(b)], 1)
    elif kind == 4:
        p = np.stack([2 * u - 1, 2 * v - 1, 0.3 * np.sin(6 * u) * np.cos(5 * v)], 1)
    else:
        p = rng.uniform(-1, 1, (n, 3))
        axis = rng.integers(0, 3, n)
        p[np.arange(n), axis] = np.sign(p[np.arange(n), axis])
    return p + 0.03 * rng.standard_normal(p.shape)


def write_scans(folder, count, points, seed):
    rng = np.random.default_rng(seed)
    names = []
    for i in range(count):
        kind = i % CLASSES
        raw = (surface(kind, points, rng) * 8192).astype(np.int16)
        path = Path(folder) / f"{i:05d}_{kind}.scan"
        path.write_bytes(zlib.compress(raw.tobytes(), 1))
        names.append(path)
    return names


class Scans(Dataset):
    def __init__(self, files, keep):
        self.files, self.keep = files, keep

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        raw = zlib.decompress(path.read_bytes())
        xyz = np.frombuffer(raw, np.int16).reshape(-1, 3).astype(np.float32) / 8192
        pick = torch.randperm(len(xyz))[: self.keep].numpy()
        xyz = xyz[pick]
        angle = float(torch.rand(())) * 6.2832
        c, s = np.cos(angle), np.sin(angle)
        xyz = xyz @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]], np.float32)
        return torch.from_numpy(xyz), int(path.stem[-1])


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 256))
        self.norm = nn.BatchNorm1d(256)
        self.head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, CLASSES))

    def forward(self, x):
        return self.head(F.relu(self.norm(self.local(x).amax(1))))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=22)
    args = ap.parse_args()
    torch.manual_seed(6)
    folder = tempfile.mkdtemp(prefix="scans_")
    files = write_scans(folder, 1152, 2048, seed=1)
    loader = DataLoader(Scans(files, 512), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True,
                        drop_last=True)
    model = PointNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        t = time.perf_counter()
        total = torch.zeros(())
        right = torch.zeros(())
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
            right += (logits.detach().argmax(1) == y).float().mean()
        n = len(loader)
        print(f"epoch {epoch}: loss {total.item() / n:.4f} acc {right.item() / n:.3f} {time.perf_counter() - t:.2f}s")


if __name__ == "__main__":
    main()
