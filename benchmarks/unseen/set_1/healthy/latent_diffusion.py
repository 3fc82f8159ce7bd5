"""Class-conditional diffusion with a convolutional U-Net, EMA weights and classifier-free dropout of the class."""
import argparse
import copy
import math
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def embed_time(t, dim):
    freq = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
    arg = t[:, None].float() * freq
    return torch.cat([arg.sin(), arg.cos()], 1)


class Res(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        y = self.conv1(F.silu(self.norm1(x))) + self.emb(e)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.skip(x)


class SpatialAttention(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.GroupNorm(4, ch), nn.Conv2d(ch, 3 * ch, 1), nn.Conv2d(ch, ch, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, c, h * w).transpose(2, 3).unbind(1)
        y = F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)).squeeze(1)
        return x + self.proj(y.transpose(1, 2).reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self, channels=4, width=40, classes=10, emb=64):
        super().__init__()
        self.dim = emb
        self.cls = nn.Embedding(classes + 1, emb)
        self.mlp = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.inp = nn.Conv2d(channels, width, 3, padding=1)
        self.d1, self.d2 = Res(width, width, emb), Res(width, 2 * width, emb)
        self.mid, self.att = Res(2 * width, 2 * width, emb), SpatialAttention(2 * width)
        self.u2, self.u1 = Res(4 * width, width, emb), Res(2 * width, width, emb)
        self.out = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, x, t, y):
        e = self.mlp(embed_time(t, self.dim) + self.cls(y))
        a = self.d1(self.inp(x), e)
        b = self.d2(F.avg_pool2d(a, 2), e)
        m = self.att(self.mid(b, e))
        u = F.interpolate(self.u2(torch.cat([m, b], 1), e), scale_factor=2)
        return self.out(self.u1(torch.cat([u, a], 1), e))


class Ema:
    def __init__(self, net, decay=0.999):
        self.shadow = copy.deepcopy(net).requires_grad_(False)
        self.decay = decay
        self.source = list(net.parameters())
        self.target = list(self.shadow.parameters())

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.target, self.source, 1 - self.decay)


class Diffusion:
    def __init__(self, steps=1000):
        self.steps = steps
        beta = torch.linspace(1e-4, 0.02, steps)
        bar = torch.cumprod(1 - beta, 0)
        self.a, self.s = bar.sqrt()[:, None, None, None], (1 - bar).sqrt()[:, None, None, None]

    def loss(self, net, x, y, null):
        t = torch.randint(self.steps, (len(x),))
        y = torch.where(torch.rand(len(y)) < 0.1, null, y)
        noise = torch.randn_like(x)
        return F.mse_loss(net(self.a[t] * x + self.s[t] * noise, t, y), noise)

    @torch.no_grad()
    def sample(self, net, y, shape, n=8):
        """A few DDIM steps, enough to see that nothing exploded."""
        x = torch.randn(len(y), *shape)
        ts = torch.linspace(self.steps - 1, 0, n).long().tolist()
        for now, nxt in zip(ts[:-1], ts[1:]):
            eps = net(x, torch.full((len(y),), now), y)
            x0 = (x - self.s[now] * eps) / self.a[now]
            x = self.a[nxt] * x0 + self.s[nxt] * eps
        return x


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=22)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--sample-every", type=int, default=5)
    args = ap.parse_args()
    torch.manual_seed(0)
    n = args.batch * 40
    labels = torch.randint(10, (n,))
    latents = F.interpolate(torch.randn(10, 4, 4, 4), size=16)[labels] + 0.2 * torch.randn(n, 4, 16, 16)
    net = UNet()
    ema = Ema(net)
    diffusion = Diffusion()
    opt = torch.optim.AdamW(net.parameters(), lr=5e-4, foreach=True)
    folder = tempfile.mkdtemp()
    for epoch in range(args.epochs):
        t0 = time.time()
        total = torch.zeros(())
        for idx in torch.randperm(n).split(args.batch):
            loss = diffusion.loss(net, latents[idx], labels[idx], 10)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            ema.update()
            total += loss.detach()
        print(f"epoch {epoch} loss {total.item() / 40:.4f} {time.time() - t0:.2f}s", flush=True)
        if (epoch + 1) % args.sample_every == 0:
            s = diffusion.sample(ema.shadow, torch.arange(4), (4, 16, 16))
            torch.save({"net": ema.shadow.state_dict(), "sample": s}, os.path.join(folder, "last.pt"))


if __name__ == "__main__":
    main()
