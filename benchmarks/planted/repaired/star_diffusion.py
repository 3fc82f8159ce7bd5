"""A denoising diffusion model for light curves."""
import argparse
import math

import torch
from torch import nn

STEPS = 400


class Denoiser(nn.Module):
    def __init__(self, length=64, width=192):
        super().__init__()
        self.time = nn.Linear(32, width)
        self.enter = nn.Linear(length, width)
        self.middle = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.leave = nn.Linear(width, length)

    def forward(self, x, angle):
        clock = torch.cat([angle.sin(), angle.cos()], 1)
        return self.leave(self.middle(self.enter(x) + self.time(clock)))


def alpha_bars():
    """The share of the signal that is left after each step of the cosine schedule."""
    left, bars = 1.0, []
    for s in range(STEPS):
        ahead = math.cos((s + 1.0) / STEPS * math.pi / 2 * 0.98) ** 2
        left *= max(ahead / math.cos(s / STEPS * math.pi / 2 * 0.98) ** 2, 1e-3)
        bars.append(left)
    return torch.tensor(bars)


def curves(n):
    t = torch.linspace(0, 1, 64)
    period, phase, depth = torch.rand(3, n, 1)
    return -depth * (((t / (0.2 + period) + phase) % 1) < 0.15).float() + 0.02 * torch.randn(n, 64)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(20)
data = curves(4096)
model = Denoiser()
frequency = 2 ** torch.linspace(0, 8, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
bars = alpha_bars()
for epoch in range(args.epochs):
    for index in torch.randperm(len(data)).split(64):
        clean = data[index]
        t = torch.randint(0, STEPS, (len(clean),))
        left = bars[t][:, None]
        noise = torch.randn_like(clean)
        noisy = left.sqrt() * clean + (1 - left).sqrt() * noise
        loss = (model(noisy, t[:, None] / STEPS * frequency) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
