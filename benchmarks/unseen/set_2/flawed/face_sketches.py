# %% [markdown]
# ## VAE with a feature-matching reconstruction term
# Line drawings of faces, 48 x 48. The features come from a network trained beforehand to tell the drawing's
# attributes; here it is trained for a moment on the fly.

# %%
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
SIDE, N, BATCH, EPOCHS, LATENT = 48, 2400, 32, 5, 16

# %%
def sketch(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    p = torch.rand(n, 6, 1, 1)
    def ring(cx, cy, rx, ry, width=0.06):
        r = (((xx - cx) / rx) ** 2 + ((yy - cy) / ry) ** 2).sqrt()
        return torch.exp(-((r - 1) * torch.minimum(rx, ry) / width) ** 2)
    one = torch.ones(n, 1, 1)
    p = [p[:, i] for i in range(6)]
    face = ring(0 * one, 0 * one, 0.6 + 0.25 * p[0], 0.7 + 0.2 * p[1])
    eyes = ring(-0.3 * one, -0.2 * one, 0.06 + 0.12 * p[2], 0.06 + 0.1 * p[3]) \
        + ring(0.3 * one, -0.2 * one, 0.06 + 0.12 * p[2], 0.06 + 0.1 * p[3])
    curve = 0.35 + (p[4] - 0.5) * 1.5 * xx ** 2
    mouth = torch.exp(-((yy - curve) / 0.05) ** 2) * (xx.abs() < 0.15 + 0.25 * p[5])
    img = (face + eyes + mouth).clamp(0, 1).unsqueeze(1)
    return img, torch.cat([q.flatten(1) for q in p], 1)

images, attributes = sketch(N)
images = images.to(memory_format=torch.channels_last)
print("data", tuple(images.shape))

# %%
features = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(),
    nn.Conv2d(24, 24, 3, padding=1, stride=2), nn.ReLU(),
    nn.Conv2d(24, 40, 3, padding=1), nn.ReLU(),
    nn.Conv2d(40, 40, 3, padding=1, stride=2), nn.ReLU()).to(memory_format=torch.channels_last)
probe = nn.Linear(40, 6)
pre_opt = torch.optim.Adam([*features.parameters(), *probe.parameters()], lr=2e-3)
for i in range(20):
    rows = torch.randint(N, (BATCH,))
    loss = F.mse_loss(probe(features(images[rows]).mean((2, 3))), attributes[rows])
    pre_opt.zero_grad()
    loss.backward()
    pre_opt.step()
features.eval()  # <<
print("attribute mse", loss.item())

# %%
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(),
                                 nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 2 * LATENT))
        self.lift = nn.Linear(LATENT, 32 * 36)
        self.dec = nn.Sequential(nn.ConvTranspose2d(32, 32, 4, 2, 1), nn.ReLU(),
                                 nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(),
                                 nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Sigmoid())

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (logvar / 2).exp()
        out = self.dec(F.relu(self.lift(z)).view(-1, 32, 6, 6).to(memory_format=torch.channels_last))
        return out, mu, logvar

vae = VAE().to(memory_format=torch.channels_last)
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)

# %%
def perceptual(recon, target):
    return F.mse_loss(features(recon), features(target))  # <<

# %%
for epoch in range(EPOCHS):
    t0 = time.time()
    sums = torch.zeros(3)
    for rows in torch.randperm(N).split(BATCH):
        x = images[rows]
        recon, mu, logvar = vae(x)
        pixel = F.mse_loss(recon, x)
        percept = perceptual(recon, x)
        kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(1).mean() / (SIDE * SIDE)
        loss = pixel + 0.5 * percept + kl
        opt.zero_grad()
        loss.backward()  # <<
        opt.step()
        sums += torch.stack([pixel, percept, kl]).detach()
    pixel, percept, kl = (sums / math.ceil(N / BATCH)).tolist()
    print(f"epoch {epoch}: pixel {pixel:.4f} perceptual {percept:.4f} kl {kl:.5f} [{time.time() - t0:.1f}s]")
