"""
Time-domain speech dereverberation (a small Conv-TasNet).

The clean utterances are put into simulated rooms on the fly, inside the
training system, so that every epoch sees other rooms.
"""
import argparse
import math
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
import torch.nn.functional as F

RATE = 16000
SAMPLES = RATE
TAPS = 4800


def make_clean(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(SAMPLES) / RATE
    f0 = 90 + 140 * torch.rand(n, 1, generator=g)
    out = torch.zeros(n, SAMPLES)
    for harmonic in range(1, 6):
        amp = torch.rand(n, 1, generator=g) / harmonic
        out += amp * torch.sin(2 * math.pi * harmonic * f0 * t)
    syllables = (torch.rand(n, 16, generator=g) > 0.35).float()
    envelope = F.interpolate(syllables[:, None], SAMPLES, mode="linear")[:, 0]
    return out * envelope


class RoomSimulator(nn.Module):
    """Convolves each utterance with its own random impulse response."""

    def __init__(self, taps, seed):
        super().__init__()
        self.taps = taps
        self.gen = torch.Generator().manual_seed(seed)
        self.register_buffer("decay_axis", torch.arange(taps) / RATE)

    def impulse_responses(self, n):
        rt60 = 0.1 + 0.3 * torch.rand(n, 1, generator=self.gen)
        tail = torch.randn(n, self.taps, generator=self.gen)
        rir = 0.15 * tail * torch.exp(-6.9 * self.decay_axis / rt60)
        rir[:, 0] = 1.0
        return rir

    @torch.no_grad()
    def forward(self, clean):
        n, length = clean.shape
        rir = self.impulse_responses(n)
        padded = F.pad(clean, (self.taps - 1, 0))
        wet = F.conv1d(padded.unsqueeze(0), rir.flip(1).unsqueeze(1), groups=n)[0]  # <<
        return wet + 0.005 * torch.randn(wet.shape, generator=self.gen)


class SeparableBlock(nn.Module):
    def __init__(self, channels, hidden, dilation):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(channels, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, hidden, 3, dilation=dilation, padding=dilation, groups=hidden),
            nn.PReLU(), nn.GroupNorm(1, hidden), nn.Conv1d(hidden, channels, 1),
        )

    def forward(self, x):
        return x + self.net(x)


class Enhancer(nn.Module):
    def __init__(self, filters=32, hidden=64, kernel=40, repeats=4):
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, kernel, stride=kernel // 2, bias=False)
        self.masker = nn.Sequential(
            nn.GroupNorm(1, filters),
            *[SeparableBlock(filters, hidden, 2 ** i) for i in range(repeats)],
            nn.Conv1d(filters, filters, 1), nn.Sigmoid(),
        )
        self.decoder = nn.ConvTranspose1d(filters, 1, kernel, stride=kernel // 2, bias=False)

    def forward(self, x):
        h = F.relu(self.encoder(x[:, None]))
        return self.decoder(h * self.masker(h))[:, 0]


class System(nn.Module):
    def __init__(self):
        super().__init__()
        self.room = RoomSimulator(TAPS, seed=17)
        self.enhancer = Enhancer()

    def forward(self, clean):
        wet = self.room(clean)  # <<
        estimate = self.enhancer(wet)
        return -si_sdr(estimate, clean[:, : estimate.shape[1]]).mean()


def si_sdr(estimate, target, eps=1e-6):
    scale = (estimate * target).sum(1, keepdim=True) / (target.pow(2).sum(1, keepdim=True) + eps)
    projection = scale * target
    noise = estimate - projection
    return 10 * torch.log10((projection.pow(2).sum(1) + eps) / (noise.pow(2).sum(1) + eps))


def save(system, folder, epoch):
    torch.save({"model": system.enhancer.state_dict(), "epoch": epoch}, Path(folder) / "last.pt")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(4)

    clean = make_clean(240, seed=4)
    system = System()
    optimizer = torch.optim.Adam(system.enhancer.parameters(), lr=1e-3)
    folder = tempfile.mkdtemp()
    order = torch.Generator().manual_seed(8)

    for epoch in range(args.epochs):
        t0 = time.time()
        acc = torch.zeros(())
        rows = torch.randperm(len(clean), generator=order).split(args.batch)
        for r in rows:
            optimizer.zero_grad(set_to_none=True)
            loss = system(clean[r])  # <<
            loss.backward()
            nn.utils.clip_grad_norm_(system.enhancer.parameters(), 5.0)
            optimizer.step()
            acc += loss.detach()
        if epoch % 5 == 4:
            save(system, folder, epoch)
        print(f"epoch {epoch} neg si-sdr {acc.item() / len(rows):.3f} dB in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
