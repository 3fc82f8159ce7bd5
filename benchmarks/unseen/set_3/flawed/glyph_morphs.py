#!/usr/bin/env python
# coding: utf-8

# # Morphing between glyphs with a beta-VAE
# In[1]:
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1234)
BETA = 0.5
Z = 16
BATCH = 64
EPOCHS = 5

# In[2]: glyphs drawn as a handful of thick strokes on 32x32


def draw_glyphs(n, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.stack(torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij"), -1)
    canvas = torch.zeros(n, 32, 32)
    for _ in range(3):
        a = torch.rand(n, 1, 1, 2, generator=g) * 24 + 4
        b = torch.rand(n, 1, 1, 2, generator=g) * 24 + 4
        d = b - a
        t = (((grid - a) * d).sum(-1) / (d * d).sum(-1).clamp(min=1e-3)).clamp(0, 1)
        dist = ((grid - a - t.unsqueeze(-1) * d) ** 2).sum(-1).sqrt()
        canvas = torch.maximum(canvas, torch.sigmoid(3.0 * (1.8 - dist)))
    return canvas.unsqueeze(1)


glyphs = torch.cat([draw_glyphs(512, s) for s in range(6)])
held_out = draw_glyphs(512, 99)
print(glyphs.shape, held_out.shape)

# In[3]:


class GlyphVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.SiLU(),
            nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(32, 48, 3, padding=1), nn.SiLU(),
            nn.Conv2d(48, 64, 3, stride=2, padding=1), nn.SiLU(),
            nn.Flatten(), nn.Linear(64 * 64, 2 * Z),
        )
        self.dec_in = nn.Linear(Z, 32 * 8 * 8)
        self.dec = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(32, 16, 3, padding=1), nn.SiLU(),
            nn.Upsample(scale_factor=2), nn.Conv2d(16, 1, 3, padding=1),
        )

    def encode(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        return mu, logvar.clamp(-8, 8)

    def decode(self, z):
        return self.dec(self.dec_in(z).view(-1, 32, 8, 8))

    def reconstruction(self, x):
        mu, logvar = self.encode(x)  # <<
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return F.binary_cross_entropy_with_logits(self.decode(z), x, reduction="sum") / len(x)

    def divergence(self, x):
        mu, logvar = self.encode(x)  # <<
        return -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(1).mean()

    def active_units(self, x):
        mu, _ = self.encode(x)  # <<
        return (mu.var(0) > 1e-2).sum()


vae = GlyphVAE().to(memory_format=torch.channels_last)
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)

# In[4]:
history = []
for epoch in range(EPOCHS):
    tic = time.time()
    perm = torch.randperm(len(glyphs))
    rec_sum = kl_sum = 0.0
    units = 0
    warm = min(1.0, (epoch + 1) / 3)
    for i in range(0, len(perm), BATCH):
        x = glyphs[perm[i:i + BATCH]]
        rec = vae.reconstruction(x)  # <<
        kl = vae.divergence(x)  # <<
        with torch.no_grad():
            units = max(units, vae.active_units(x).item())  # <<
        loss = rec + warm * BETA * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        rec_sum += rec.item()
        kl_sum += kl.item()
    steps = math.ceil(len(perm) / BATCH)
    history.append((rec_sum / steps, kl_sum / steps))
    print(f"epoch {epoch}  rec {history[-1][0]:.2f}  kl {history[-1][1]:.2f}  active {units}  {time.time() - tic:.1f}s", flush=True)

# In[5]: how far is a morph from the manifold?
with torch.no_grad():
    mu, _ = vae.encode(held_out[:64])
    mid = vae.decode(0.5 * (mu[:32] + mu[32:])).sigmoid()
    print("mean ink of morphs", mid.mean().item(), "of glyphs", held_out[:64].mean().item())
