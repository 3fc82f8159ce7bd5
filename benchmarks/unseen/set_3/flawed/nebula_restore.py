"""Self-supervised restoration of nebula plates: the network's sharp image, blurred by the seeing of
each of three exposures, has to reproduce these exposures."""
import time

import torch
from torch import nn
import torch.nn.functional as F


class Seeing(nn.Module):
    """Gaussian point spread function of given width, applied as a convolution."""

    def __init__(self, sigma, radius=8):
        super().__init__()
        r = torch.arange(-radius, radius + 1).float()
        g = torch.exp(-0.5 * (r / sigma) ** 2)
        g = g / g.sum()
        self.register_buffer("psf", torch.outer(g, g)[None, None])
        self.radius = radius

    def forward(self, sky):
        return F.conv2d(sky, self.psf, padding=self.radius)  # <<


class Restorer(nn.Module):
    def __init__(self, exposures, width=16):
        super().__init__()
        self.stem = nn.Conv2d(exposures, width, 3, padding=1)
        self.mid = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(3)])
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, plates):
        h = F.relu(self.stem(plates))
        for conv in self.mid:
            h = h + F.relu(conv(h))
        return F.softplus(self.out(h) + plates.mean(1, keepdim=True))


@torch.no_grad()
def plates(n, side, seeing, seed):
    gen = torch.Generator().manual_seed(seed)
    sky = torch.zeros(n, 1, side, side)
    flat = sky.view(n, -1)
    stars = torch.randint(0, side * side, (n, 30), generator=gen)
    flat.scatter_add_(1, stars, torch.rand(n, 30, generator=gen) * 40)
    cloud = F.interpolate(torch.rand(n, 1, 6, 6, generator=gen), size=(side, side), mode="bicubic", align_corners=False)
    sky += cloud.clamp(min=0) ** 2
    seen = torch.cat([torch.cat([s(chunk) for s in seeing], 1) for chunk in sky.split(32)])
    return seen + 0.02 * torch.randn(seen.shape, generator=gen), sky


def main():
    torch.manual_seed(21)
    seeing = nn.ModuleList([Seeing(1.2), Seeing(1.8), Seeing(2.6)])
    seen, sky = plates(400, 64, seeing, seed=8)
    net = Restorer(len(seeing)).to(memory_format=torch.channels_last)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    train_n = 360
    for epoch in range(8):
        began = time.time()
        for k, sel in enumerate(torch.randperm(train_n).split(6)):
            obs = seen[sel].contiguous(memory_format=torch.channels_last)
            sharp = net(obs)
            fit = 0.0
            for i, blur in enumerate(seeing):
                fit = fit + F.mse_loss(blur(sharp), obs[:, i:i + 1])  # <<
            sparsity = sharp.mean()
            loss = fit + 0.01 * sparsity
            opt.zero_grad()
            loss.backward()
            opt.step()
            if k % 20 == 0:
                print(f"{epoch}/{k}: fit {fit.item():.5f} mean flux {sparsity.item():.3f}", flush=True)
        with torch.no_grad():
            rest = net(seen[train_n:])
            gain = F.mse_loss(rest, sky[train_n:]) / F.mse_loss(seen[train_n:, :1], sky[train_n:])
        print(f"epoch {epoch}: restored/observed error {gain.item():.3f}, {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
