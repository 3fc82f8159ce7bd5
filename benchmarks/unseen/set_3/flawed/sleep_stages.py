# Sleep staging from a single EEG channel. One archive per recorded night, like the Sleep-EDF
# preprocessing scripts write them: nights/SC4xxx.npz with arrays "x", "y", "fs".
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STAGES = ["W", "N1", "N2", "N3", "REM"]


@dataclass
class Config:
    nights: int = 40
    per_night: int = 120
    samples: int = 1000
    batch_size: int = 32
    epochs: int = 3
    lr: float = 2e-3
    seed: int = 11
    root: Path = Path(tempfile.mkdtemp(prefix="sleep_stages_"))


def write_nights(cfg):
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.samples) / 100.0
    centre = np.array([10.0, 7.0, 13.0, 1.5, 5.0])
    for night in range(cfg.nights):
        y = rng.integers(0, len(STAGES), cfg.per_night)
        freq = centre[y] * rng.uniform(0.85, 1.15, cfg.per_night)
        phase = rng.uniform(0, 6.28, cfg.per_night)
        amp = rng.uniform(40, 90, cfg.per_night)
        x = amp[:, None] * np.sin(2 * np.pi * freq[:, None] * t + phase[:, None])
        x += rng.normal(0, 55, x.shape)
        np.savez_compressed(cfg.root / f"SC4{night:03d}.npz", x=x.astype(np.int16), y=y.astype(np.int64), fs=100)


class NightEpochs(Dataset):
    """Every item is one 10-second window and its stage."""

    def __init__(self, files):
        self.index = []
        for f in files:
            n = len(np.load(f)["y"])
            self.index += [(f, k) for k in range(n)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        path, k = self.index[i]
        night = np.load(path)  # <<
        x = night["x"][k].astype(np.float32) / 100.0  # <<
        y = night["y"][k]
        x = np.roll(x, np.random.randint(0, 100)) * np.random.uniform(0.8, 1.2)
        return torch.from_numpy(x.astype(np.float32))[None], int(y)


def block(cin, cout, k, stride):
    return nn.Sequential(nn.Conv1d(cin, cout, k, stride=stride, padding=k // 2, bias=False),
                         nn.BatchNorm1d(cout), nn.ReLU())


class StageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(block(1, 32, 25, 3), block(32, 48, 9, 2), block(48, 64, 7, 2), block(64, 64, 5, 2))
        self.head = nn.Linear(128, len(STAGES))

    def forward(self, x):
        h = self.body(x)
        return self.head(torch.cat([h.mean(-1), h.std(-1)], 1))


def run(cfg: Config):
    torch.manual_seed(cfg.seed)
    np.random.seed(cfg.seed)
    write_nights(cfg)
    files = sorted(cfg.root.glob("*.npz"))
    cut = int(len(files) * 0.9)
    train = DataLoader(NightEpochs(files[:cut]), cfg.batch_size, shuffle=True, drop_last=True)
    test = DataLoader(NightEpochs(files[cut:]), 100)
    net = StageNet()
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr * 3, total_steps=cfg.epochs * len(train))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    for epoch in range(1, cfg.epochs + 1):
        net.train()
        for it, (x, y) in enumerate(train, 1):
            opt.zero_grad(set_to_none=True)
            loss = criterion(net(x), y)
            loss.backward()
            opt.step()
            sched.step()
            if it % 30 == 0:
                print(f"[{epoch}/{cfg.epochs}] {it}/{len(train)}  loss={loss.item():.3f}", flush=True)
        net.eval()
        confusion = torch.zeros(len(STAGES), len(STAGES), dtype=torch.long)
        with torch.no_grad():
            for x, y in test:
                pred = net(x).argmax(1)
                confusion.view(-1).index_add_(0, y * len(STAGES) + pred, torch.ones_like(y))
        recall = confusion.diag() / confusion.sum(1).clamp(min=1)
        print("  recall " + "  ".join(f"{s} {r:.2f}" for s, r in zip(STAGES, recall.tolist())))


if __name__ == "__main__":
    run(Config())
