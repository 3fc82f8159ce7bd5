"""Bird call classification from wav files; reading and log-mel in a worker process."""
import argparse
import os
import tempfile
import time
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

RATE = 16000
SPECIES = 10


def record(folder, n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(RATE) / RATE
    files = []
    for i in range(n):
        kind = i % SPECIES
        f = 1200 + 350 * kind + 300 * np.sin(2 * np.pi * (3 + kind % 4) * t) + rng.normal(0, 40)
        x = np.sin(2 * np.pi * np.cumsum(f) / RATE) * (np.sin(2 * np.pi * (2 + kind % 3) * t) > 0)
        x = 0.4 * x + 0.1 * rng.normal(size=RATE)
        path = os.path.join(folder, f"call_{i:04d}.wav")
        with wave.open(path, "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(RATE)
            w.writeframes((np.clip(x, -1, 1) * 32000).astype("<i2").tobytes())
        files.append((path, kind))
    return files


def mel_matrix(n_mels, n_fft):
    def to_mel(f):
        return 2595 * np.log10(1 + f / 700)

    edges = 700 * (10 ** (np.linspace(to_mel(50), to_mel(RATE / 2), n_mels + 2) / 2595) - 1)
    freqs = np.linspace(0, RATE / 2, n_fft // 2 + 1)
    up = (freqs[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - freqs[None]) / (edges[2:] - edges[1:-1])[:, None]
    return torch.from_numpy(np.maximum(0, np.minimum(up, down)).astype(np.float32))


class Calls(Dataset):
    def __init__(self, files, n_mels=48, n_fft=512):
        self.files = files
        self.n_fft = n_fft
        self.mel = mel_matrix(n_mels, n_fft)
        self.window = torch.hann_window(n_fft)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path, kind = self.files[i]
        with wave.open(path, "rb") as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2")
        x = torch.from_numpy(pcm.astype(np.float32) / 32768)
        x = torch.roll(x, int(torch.randint(0, RATE, ())))
        spec = torch.stft(x, self.n_fft, 160, window=self.window, return_complex=True).abs().square()
        logmel = torch.log(self.mel @ spec + 1e-6)
        return (logmel - logmel.mean()) / logmel.std(), kind


def conv(a, b, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class CallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv(1, 24, 2), conv(24, 24), conv(24, 48, 2), conv(48, 48),
                                  conv(48, 96, 2), conv(96, 96))
        self.head = nn.Linear(96, SPECIES)

    def forward(self, x):
        return self.head(self.body(x.unsqueeze(1)).mean((2, 3)))


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=14)
    args = ap.parse_args()
    torch.manual_seed(5)
    files = record(tempfile.mkdtemp(), 640, seed=5)
    loader = DataLoader(Calls(files), batch_size=16, shuffle=True, num_workers=1,
                        persistent_workers=True, drop_last=True)
    net = CallNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for epoch in range(args.epochs):
        t0 = time.time()
        seen = []
        for x, y in loader:
            loss = F.cross_entropy(net(x), y, label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            seen.append(loss.detach())
        print(f"epoch {epoch} loss {torch.stack(seen).mean().item():.3f} {time.time() - t0:.2f}s")


if __name__ == "__main__":
    run()
