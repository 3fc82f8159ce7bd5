"""Brain-age regression: a head trained on top of a fixed 3D encoder (volumes are synthetic phantoms)."""
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split


def phantom(rng, age, size):
    """Ellipsoid head, ventricles growing with age, cortex thinning with age."""
    g = np.linspace(-1, 1, size, dtype=np.float32)
    z, y, x = np.meshgrid(g, g, g, indexing="ij")
    wobble = rng.normal(0, 0.03, 3)
    head = (x / (0.80 + wobble[0])) ** 2 + (y / (0.92 + wobble[1])) ** 2 + (z / (0.85 + wobble[2])) ** 2
    vent = (np.abs(x) - 0.14) ** 2 / 0.02 + y ** 2 / 0.15 + z ** 2 / 0.06
    grey = 1.0 - 0.28 * (age - 20) / 70
    vol = np.where(head < 1, 0.8, 0.0) + np.where((head < 1) & (head > 0.75), 0.2 * grey, 0)
    vol = np.where(vent < 0.25 + 0.9 * (age - 20) / 70 + rng.normal(0, 0.1), 0.15, vol)
    return (vol + rng.normal(0, 0.05, vol.shape)).astype(np.float32)


class Volumes(Dataset):
    def __init__(self, n, size=32, seed=0):
        rng = np.random.default_rng(seed)
        self.age = rng.uniform(20, 90, n).astype(np.float32)
        self.vol = np.stack([phantom(rng, a, size) for a in self.age]).astype(np.float16)

    def __len__(self):
        return len(self.age)

    def __getitem__(self, i):
        return torch.from_numpy(self.vol[i].astype(np.float32))[None], torch.tensor((self.age[i] - 55.0) / 20.0)


class Encoder3d(nn.Module):
    def __init__(self, width=16):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(nn.Conv3d(i, o, 3, 2, 1, bias=False), nn.BatchNorm3d(o), nn.ReLU(inplace=True),
                                 nn.Conv3d(o, o, 3, 1, 1, bias=False), nn.BatchNorm3d(o), nn.ReLU(inplace=True))

        self.s1, self.s2, self.s3 = stage(1, width), stage(width, 2 * width), stage(2 * width, 4 * width)

    def forward(self, x):
        return self.s3(self.s2(self.s1(x)))


class AttentionHead(nn.Module):
    def __init__(self, channels, hidden=128):
        super().__init__()
        self.score = nn.Conv3d(channels, 4, 1)
        self.mlp = nn.Sequential(nn.Linear(4 * channels, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 1))

    def forward(self, f):
        w = self.score(f).flatten(2).softmax(-1)
        pooled = torch.einsum("bkn,bcn->bkc", w, f.flatten(2))
        return self.mlp(pooled.flatten(1)).squeeze(1)


def pretrained(path):
    """Encoder weights as they would come from a self-supervised run."""
    if not os.path.exists(path):
        torch.manual_seed(99)
        donor = Encoder3d()
        with torch.no_grad():
            donor.train()
            for _ in range(10):
                donor(torch.randn(4, 1, 32, 32, 32) * 0.4 + 0.4)
        torch.save(donor.state_dict(), path)
    enc = Encoder3d()
    enc.load_state_dict(torch.load(path))
    return enc.eval().requires_grad_(False)


class ProbeTrainer:
    def __init__(self, encoder, head, train, val, lr=1e-3, epochs=6):
        self.encoder, self.head = encoder, head
        self.train_loader = DataLoader(train, 16, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(val, 32)
        self.opt = torch.optim.AdamW(head.parameters(), lr=lr)
        self.loss = nn.SmoothL1Loss()
        self.epochs = epochs

    def embed(self, vol):
        with torch.no_grad():
            return self.encoder(vol)  # <<

    def run(self):
        for epoch in range(self.epochs):
            t0, total = time.time(), 0.0
            self.head.train()
            for vol, age in self.train_loader:
                pred = self.head(self.embed(vol))  # <<
                loss = self.loss(pred, age)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            self.head.eval()
            errs = []
            with torch.no_grad():
                for vol, age in self.val_loader:
                    errs.append((self.head(self.embed(vol)) - age).abs() * 20)
            print(f"epoch {epoch + 1:2d}/{self.epochs} loss {total / len(self.train_loader):.4f} "
                  f"MAE {torch.cat(errs).mean():.2f} years ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    encoder = pretrained(os.path.join(tempfile.mkdtemp(prefix="brain_age_"), "encoder.pt"))
    torch.manual_seed(0)
    data = Volumes(1500)
    train, val = random_split(data, [1300, 200], generator=torch.Generator().manual_seed(1))
    ProbeTrainer(encoder, AttentionHead(64), train, val).run()
