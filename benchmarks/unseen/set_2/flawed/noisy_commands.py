"""Voice commands in noise. Every training clip is mixed with a random stretch of background noise."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, get_worker_info

RATE, CLASSES = 8000, 12


def write_noise_bank(path, minutes=15, seed=0):
    """Babble-like recordings at 16 kHz, as delivered."""
    rng = np.random.default_rng(seed)
    n = 16000 * 60
    tracks = {}
    for k in range(minutes):
        white = rng.standard_normal(n).astype(np.float32)
        smooth = np.convolve(white, np.hanning(9 + 6 * k).astype(np.float32), "same")
        tracks[f"scene{k}"] = (smooth / np.abs(smooth).max() * 30000).astype(np.int16)
    np.savez_compressed(path, **tracks)


def read_noise_bank(path):
    """Decode, resample to 8 kHz through the spectrum, normalise."""
    out = []
    with np.load(path) as z:
        for name in z.files:
            spec = np.fft.rfft(z[name].astype(np.float64))
            half = np.fft.irfft(spec[:len(spec) // 2 + 1]).astype(np.float32)
            out.append(half / (half.std() + 1e-9))
    return np.concatenate(out)


class Commands(Dataset):
    def __init__(self, n, noise_path, seed):
        rng = np.random.default_rng(seed)
        self.noise_path, self.noise = noise_path, None
        self.labels = rng.integers(0, CLASSES, n)
        t = np.arange(RATE // 2, dtype=np.float32) / RATE
        f = 180 + 60 * self.labels[:, None] + rng.normal(0, 6, (n, 1))
        self.clips = (np.sin(2 * np.pi * f * t + 3 * np.sin(2 * np.pi * rng.uniform(2, 6, (n, 1)) * t))
                      + 0.5 * np.sin(4 * np.pi * f * t)).astype(np.float16)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        clip = self.clips[i].astype(np.float32)
        at = int(torch.randint(len(self.noise) - len(clip), (1,)))
        snr = float(torch.empty(1).uniform_(-3, 12))
        return torch.from_numpy(clip + self.noise[at:at + len(clip)] * 10 ** (-snr / 20)), int(self.labels[i])


def load_noise(worker_id):
    ds = get_worker_info().dataset
    ds.noise = read_noise_bank(ds.noise_path)  # <<


class RawNet(nn.Module):
    """1-D residual CNN on the waveform."""

    def __init__(self, w=48):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(1, w, 64, 16), nn.BatchNorm1d(w), nn.ReLU())
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv1d(w, w, 3, padding=1), nn.BatchNorm1d(w), nn.ReLU(),
                                                  nn.Conv1d(w, w, 3, padding=1), nn.BatchNorm1d(w)) for _ in range(3))
        self.out = nn.Linear(w, CLASSES)

    def forward(self, x):
        x = self.front(x[:, None])
        for b in self.blocks:
            x = F.max_pool1d(F.relu(x + b(x)), 2)
        return self.out(x.mean(2))


def run(args):
    torch.manual_seed(args.seed)
    bank = Path(tempfile.mkdtemp(prefix="noisy_commands_")) / "noise.npz"
    write_noise_bank(bank)
    loader = DataLoader(Commands(args.clips, bank, 1), batch_size=args.batch, shuffle=True, drop_last=True,
                        num_workers=1, worker_init_fn=load_noise)  # <<
    model = RawNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        t0, loss_sum, good = time.time(), 0.0, 0
        for x, y in loader:  # <<
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            loss_sum += loss.item()
            good += (logits.argmax(1) == y).sum().item()
        print(f"epoch {epoch + 1:2d}  loss {loss_sum / len(loader):.4f}  "
              f"acc {good / (len(loader) * args.batch):.3f}  {time.time() - t0:.2f}s", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=1920)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=14)
    p.add_argument("--seed", type=int, default=2)
    run(p.parse_args())
