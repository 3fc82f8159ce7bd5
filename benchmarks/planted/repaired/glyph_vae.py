import argparse
import os
import tempfile

import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(9)
out = tempfile.mkdtemp()


class VAE(nn.Module):
    def __init__(self, pixels=28 * 28, hidden=256, latent=16):
        super().__init__()
        self.enc = nn.Linear(pixels, hidden)
        self.mu, self.logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.dec = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def glyphs(n):
    strokes = torch.zeros(n, 28, 28)
    for k in range(n):
        for _ in range(3):
            at = torch.randint(2, 26, (3,)).tolist()
            if at[0] % 2:
                strokes[k, at[1], min(at[0], at[2]) : max(at[0], at[2]) + 1] = 1
            else:
                strokes[k, min(at[0], at[2]) : max(at[0], at[2]) + 1, at[1]] = 1
    return strokes.flatten(1)


def save_grid(images, path, rows=8):
    grid = images.view(rows, -1, 28, 28).permute(0, 2, 1, 3).reshape(rows * 28, -1)
    picture = Image.fromarray((grid.clamp(0, 1) * 255).byte().numpy())
    picture.resize((picture.width * 3, picture.height * 3), Image.NEAREST).save(path)


data = glyphs(3200)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for step, x in enumerate(data[torch.randperm(len(data))].split(64)):
        recon, mu, logvar = model(x)
        rebuild = F.binary_cross_entropy_with_logits(recon, x, reduction="sum") / len(x)
        kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1).mean()
        loss = rebuild + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save_grid(recon.detach().sigmoid(), os.path.join(out, f"recon_{step:03d}.png"))
    print(f"epoch {epoch}: rebuild {rebuild.item():.3f} kl {kl.item():.3f}")
