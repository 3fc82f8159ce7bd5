import argparse
import math
import os
import random
import tempfile
import time
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SOURCE_RATE = 22050
TARGET_RATE = 16000
CLASSES = 12


# ----------------------------------------------------------------- recordings
def record_all(folder, count, seed=3):
    rng = np.random.default_rng(seed)
    t = np.arange(SOURCE_RATE) / SOURCE_RATE
    items = []
    for i in range(count):
        label = i % CLASSES
        f0 = 180 + 70 * label + rng.normal(0, 8)
        sweep = rng.uniform(-60, 60)
        x = np.sin(2 * np.pi * (f0 * t + 0.5 * sweep * t * t))
        x += 0.4 * np.sin(2 * np.pi * 2.1 * f0 * t)
        x *= np.hanning(len(t))
        x += rng.normal(0, 0.2, len(t))
        pcm = np.clip(x * 9000, -32000, 32000).astype("<i2")
        path = os.path.join(folder, f"{i:04d}.wav")
        with wave.open(path, "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(SOURCE_RATE)
            w.writeframes(pcm.tobytes())
        items.append((path, label))
    return items


def read_wav(path):
    with wave.open(path, "rb") as w:
        rate = w.getframerate()
        pcm = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2")
    return torch.from_numpy(pcm.astype(np.float32) / 32768.0), rate


# ----------------------------------------------------------------- transforms
def sinc_filters(orig, new, zeros=6, rolloff=0.99):
    base = min(orig, new) * rolloff
    width = math.ceil(zeros * orig / base)
    idx = torch.arange(-width, width + orig, dtype=torch.float64)[None] / orig
    t = torch.arange(0, -new, -1, dtype=torch.float64)[:, None] / new + idx
    t = (t * base).clamp_(-zeros, zeros)
    window = torch.cos(t * math.pi / zeros / 2) ** 2
    t = t * math.pi
    kernel = torch.where(t == 0, torch.ones_like(t), t.sin() / t)
    return (kernel * window * (base / orig)).float()[:, None], width


class Resample:
    """Polyphase windowed-sinc resampling of mono signals."""

    def __init__(self, target_rate):
        self.target_rate = target_rate

    def __call__(self, x, rate):
        g = math.gcd(rate, self.target_rate)
        orig, new = rate // g, self.target_rate // g
        kernel, width = sinc_filters(orig, new)  # <<
        n_out = math.ceil(new * x.numel() / orig)
        padded = F.pad(x[None, None], (width, width + orig))
        y = F.conv1d(padded, kernel, stride=orig)
        return y.transpose(1, 2).reshape(-1)[:n_out]


class TimeShift:
    def __init__(self, most):
        self.most = most

    def __call__(self, x):
        return torch.roll(x, random.randint(-self.most, self.most))


class PeakNorm:
    def __call__(self, x):
        return x / x.abs().max().clamp_min(1e-4)


class Commands(Dataset):
    def __init__(self, items):
        self.items = items
        self.resample = Resample(TARGET_RATE)
        self.augment = [TimeShift(800), PeakNorm()]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, label = self.items[i]
        x, rate = read_wav(path)
        x = self.resample(x, rate)  # <<
        for a in self.augment:
            x = a(x)
        return x, label


# ---------------------------------------------------------------------- model
def block(c_in, c_out, k, s):
    return nn.Sequential(
        nn.Conv1d(c_in, c_out, k, stride=s, padding=k // 2, bias=False),
        nn.BatchNorm1d(c_out),
        nn.ReLU(inplace=True),
    )


class M5(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.front = nn.Conv1d(1, width, 80, stride=16, padding=40)
        self.body = nn.Sequential(
            block(width, width, 3, 1), nn.MaxPool1d(4),
            block(width, 2 * width, 3, 1), nn.MaxPool1d(4),
            block(2 * width, 4 * width, 3, 1), nn.MaxPool1d(4),
        )
        self.out = nn.Linear(4 * width, CLASSES)

    def forward(self, x):
        h = F.relu(self.front(x[:, None]))
        return self.out(self.body(h).mean(-1))


def train_one_epoch(model, loader, opt):
    model.train()
    running, seen = torch.zeros(()), 0
    for x, y in loader:  # <<
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.detach() * len(y)
        seen += len(y)
    return (running / seen).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=18)
    ap.add_argument("--batch-size", type=int, default=16)
    args = ap.parse_args()
    torch.manual_seed(0)
    random.seed(0)

    items = record_all(tempfile.mkdtemp(), 640)
    loader = DataLoader(Commands(items), batch_size=args.batch_size, shuffle=True,
                        num_workers=1, persistent_workers=True,
                        generator=torch.Generator().manual_seed(1))
    model = M5()
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
    for epoch in range(args.epochs):
        t0 = time.perf_counter()
        loss = train_one_epoch(model, loader, opt)
        sched.step()
        print(f"epoch {epoch}: loss {loss:.3f}  {time.perf_counter() - t0:.2f} s")


if __name__ == "__main__":
    main()
