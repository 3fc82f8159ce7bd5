# Learned data assimilation: a network proposes an analysis increment from background + sparse
# observations and is trained on the variational cost  J = dx' B^-1 dx + (Hx - y)' R^-1 (Hx - y).
import time

import torch
from torch import nn

SIDE = 32
CELLS = SIDE * SIDE


def gaussian_covariance(length=2.5, sigma=0.8):
    yy, xx = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    pos = torch.stack([yy.flatten(), xx.flatten()], 1).float()
    return sigma ** 2 * torch.exp(-torch.cdist(pos, pos) / length)


class Archive:
    """Truth fields drawn from the climatology; the background is an old forecast of them."""

    def __init__(self, size, cov, seed):
        g = torch.Generator().manual_seed(seed)
        root = torch.linalg.cholesky(cov + 1e-4 * torch.eye(CELLS))
        self.truth = torch.randn(size, CELLS, generator=g) @ root.T
        self.background = self.truth + 0.6 * torch.randn(size, CELLS, generator=g) @ root.T
        self.mask = (torch.rand(size, CELLS, generator=g) < 0.08).float()
        self.obs = (self.truth + 0.1 * torch.randn(size, CELLS, generator=g)) * self.mask

    def batches(self, size, shuffle=True):
        order = torch.randperm(len(self.truth)) if shuffle else torch.arange(len(self.truth))
        for sel in order.split(size):
            yield self.background[sel], self.obs[sel], self.mask[sel], self.truth[sel]


class IncrementNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, padding=2), nn.GELU(),
            nn.Conv2d(width, width, 5, padding=2), nn.GELU(),
            nn.Conv2d(width, 1, 5, padding=2),
        )

    def forward(self, background, obs, mask):
        x = torch.stack([background, (obs - background) * mask, mask], 1).view(-1, 3, SIDE, SIDE)
        return self.body(x.contiguous(memory_format=torch.channels_last)).flatten(1)


class VariationalCost(nn.Module):
    def __init__(self, cov, obs_error=0.1):
        super().__init__()
        self.register_buffer("cov", cov)
        self.obs_error = obs_error

    def forward(self, increment, background, obs, mask):
        precision = torch.linalg.inv(self.cov + 1e-3 * torch.eye(len(self.cov)))  # <<
        jb = ((increment @ precision) * increment).sum(1)
        departure = (background + increment - obs) * mask
        jo = (departure ** 2).sum(1) / self.obs_error ** 2
        return 0.5 * (jb + jo).mean() / CELLS


def evaluate(net, archive):
    with torch.no_grad():
        se = sb = 0.0
        for bg, obs, mask, truth in archive.batches(64, shuffle=False):
            se += ((bg + net(bg, obs, mask) - truth) ** 2).sum().item()
            sb += ((bg - truth) ** 2).sum().item()
    return (se / sb) ** 0.5


torch.manual_seed(0)
clim = gaussian_covariance()
train, test = Archive(2048, clim, 1), Archive(256, clim, 2)
net = IncrementNet().to(memory_format=torch.channels_last)
cost = VariationalCost(0.36 * clim)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(1, 4):
    t0 = time.perf_counter()
    for i, (bg, obs, mask, _) in enumerate(train.batches(16)):
        inc = net(bg, obs, mask)
        loss = cost(inc, bg, obs, mask)  # <<
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 32 == 0:
            print(f"epoch {epoch} batch {i:3d} J {loss.item():.4f}", flush=True)
    print(f"epoch {epoch}: error ratio analysis/background {evaluate(net, test):.3f}, {time.perf_counter() - t0:.1f} s", flush=True)
