"""DDPM on seven-segment digits, with preview images."""
import argparse
import math
import os
import tempfile
import time
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image


@dataclass
class Settings:
    size: int = 24
    width: int = 24
    timesteps: int = 400
    batch: int = 16
    steps: int = 50
    lr: float = 1e-3
    preview_every: int = 5
    preview_scale: int = 6
    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="ddpm_"))


SEGMENTS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg"]
LINES = {"a": (0, 0, 0, 1), "b": (0, 1, 1, 1), "c": (1, 1, 2, 1), "d": (2, 0, 2, 1), "e": (1, 0, 2, 0), "f": (0, 0, 1, 0), "g": (1, 0, 1, 1)}


def draw_digits(n, size):
    g = torch.Generator().manual_seed(6)
    templates = torch.full((10, size, size), -1.0)
    for d, segs in enumerate(SEGMENTS):
        for s in segs:
            y0, x0, y1, x1 = LINES[s]
            templates[d, 4 + y0 * 7:6 + y1 * 7, 7 + x0 * 8:9 + x1 * 8] = 1.0
    which = torch.randint(0, 10, (n,), generator=g)
    shift = torch.randint(-2, 3, (n, 2), generator=g).tolist()
    return torch.stack([templates[w].roll(s, (0, 1)) for w, s in zip(which.tolist(), shift)]).unsqueeze(1)


class Schedule:
    def __init__(self, timesteps):
        s = torch.arange(timesteps + 1) / timesteps
        f = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        beta = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        bar = torch.cumprod(1 - beta, 0)
        self.n = timesteps
        self.signal, self.sigma = bar.sqrt().view(-1, 1, 1, 1), (1 - bar).sqrt().view(-1, 1, 1, 1)

    def corrupt(self, x, t, noise):
        return self.signal[t] * x + self.sigma[t] * noise

    def clean_estimate(self, xt, t, eps):
        return (xt - self.sigma[t] * eps) / self.signal[t].clamp(min=0.05)


class TimeBlock(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.norm = nn.GroupNorm(4, cout)
        self.emb = nn.Linear(temb, cout)

    def forward(self, x, t):
        y = F.silu(self.norm(self.conv1(x))) + self.emb(t)[:, :, None, None]
        return F.silu(self.conv2(y))


class Denoiser(nn.Module):
    def __init__(self, w, temb=32):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, -6, temb // 2)))
        self.mlp = nn.Sequential(nn.Linear(temb, temb), nn.SiLU())
        self.a = TimeBlock(1, w, temb)
        self.b = TimeBlock(w, 2 * w, temb)
        self.c = TimeBlock(2 * w, 2 * w, temb)
        self.d = TimeBlock(3 * w, w, temb)
        self.out = nn.Conv2d(w, 1, 3, padding=1)

    def forward(self, x, t):
        arg = t[:, None].float() * self.freq
        emb = self.mlp(torch.cat([arg.sin(), arg.cos()], 1))
        a = self.a(x, emb)
        b = self.c(self.b(F.avg_pool2d(a, 2), emb), emb)
        return self.out(self.d(torch.cat([F.interpolate(b, scale_factor=2), a], 1), emb))


def to_grid(images, columns):
    n, _, h, w = images.shape
    rows = n // columns
    return images[:rows * columns].view(rows, columns, h, w).permute(0, 2, 1, 3).reshape(rows * h, columns * w)


class PreviewWriter:
    """Puts noisy inputs and the estimates of the clean images side by side into a PNG."""

    def __init__(self, cfg):
        self.cfg = cfg

    def after_step(self, loop):
        if loop.step % self.cfg.preview_every == 0:  # <<
            self.write(loop)  # <<

    def after_epoch(self, loop):
        pass

    def write(self, loop):
        both = torch.cat([loop.last["noisy"], loop.last["estimate"]])
        grid = to_grid(both.clamp(-1, 1), 8)
        picture = Image.fromarray(((grid + 1) * 127.5).byte().numpy())
        w, h = picture.size
        picture = picture.resize((w * self.cfg.preview_scale, h * self.cfg.preview_scale), Image.LANCZOS)  # <<
        picture.save(os.path.join(self.cfg.folder, f"step_{loop.step % 50:05d}.png"), optimize=True)  # <<


class Report:
    def __init__(self):
        self.t = time.time()
        self.total = torch.zeros(())

    def after_step(self, loop):
        self.total += loop.last["loss"]

    def after_epoch(self, loop):
        now = time.time()
        print(f"epoch {loop.epoch}: mse {self.total.item() / loop.cfg.steps:.4f}, {now - self.t:.2f} s", flush=True)
        self.t = now
        self.total.zero_()


class Loop:
    def __init__(self, cfg, listeners):
        self.cfg, self.listeners = cfg, listeners
        self.data = draw_digits(cfg.batch * cfg.steps, cfg.size)
        self.schedule = Schedule(cfg.timesteps)
        self.net = Denoiser(cfg.width)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr)
        self.step = self.epoch = 0
        self.last = {}

    def notify(self, event):
        for listener in self.listeners:
            getattr(listener, event)(self)

    def run(self, epochs):
        for self.epoch in range(epochs):
            for idx in torch.randperm(len(self.data)).split(self.cfg.batch):
                self.train_step(self.data[idx])
                self.step += 1
                self.notify("after_step")  # <<
            self.notify("after_epoch")

    def train_step(self, x):
        t = torch.randint(0, self.schedule.n, (len(x),))
        noise = torch.randn_like(x)
        noisy = self.schedule.corrupt(x, t, noise)
        eps = self.net(noisy, t)
        loss = F.mse_loss(eps, noise)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.last = {"loss": loss.detach(), "noisy": noisy, "estimate": self.schedule.clean_estimate(noisy, t, eps.detach())}


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    epochs = ap.parse_args().epochs
    torch.manual_seed(0)
    cfg = Settings()
    Loop(cfg, [PreviewWriter(cfg), Report()]).run(epochs)
