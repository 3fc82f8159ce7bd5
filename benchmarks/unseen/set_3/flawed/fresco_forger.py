"""DCGAN on procedurally generated fresco patches."""
import time
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

opt = SimpleNamespace(nz=64, ngf=32, ndf=12, batch=32, patches=2560, epochs=3, lr=2e-4, beta1=0.5)


def fresco_patches(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 4, 4, generator=g)
    x = F.interpolate(coarse, size=32, mode="bicubic", align_corners=False)
    yy, xx = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    c = torch.rand(n, 2, 1, 1, generator=g) * 32
    r = torch.rand(n, 1, 1, generator=g) * 10 + 3
    halo = torch.exp(-(((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2).sqrt() - r) ** 2 / 4)
    return (x + halo.unsqueeze(1) * torch.tensor([0.8, 0.6, 0.1]).view(1, 3, 1, 1)).clamp(0, 1) * 2 - 1


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        f = opt.ngf
        self.fc = nn.Linear(opt.nz, 4 * f * 16)
        self.blocks = nn.Sequential(
            nn.BatchNorm2d(4 * f), nn.ReLU(True), nn.Upsample(scale_factor=2), nn.Conv2d(4 * f, 2 * f, 3, 1, 1, bias=False),
            nn.BatchNorm2d(2 * f), nn.ReLU(True), nn.Upsample(scale_factor=2), nn.Conv2d(2 * f, 2 * f, 3, 1, 1, bias=False),
            nn.BatchNorm2d(2 * f), nn.ReLU(True), nn.Upsample(scale_factor=2), nn.Conv2d(2 * f, f, 3, 1, 1, bias=False),
            nn.BatchNorm2d(f), nn.ReLU(True), nn.Conv2d(f, 3, 3, 1, 1), nn.Tanh(),
        )

    def forward(self, z):
        h = self.fc(z).view(z.size(0), -1, 4, 4).contiguous(memory_format=torch.channels_last)
        return self.blocks(h)


def critic():
    f = opt.ndf
    return nn.Sequential(
        nn.Conv2d(3, f, 4, 2, 1), nn.LeakyReLU(0.2, True),
        nn.Conv2d(f, 2 * f, 4, 2, 1), nn.LeakyReLU(0.2, True),
        nn.Conv2d(2 * f, 4 * f, 4, 2, 1), nn.LeakyReLU(0.2, True),
        nn.Conv2d(4 * f, 1, 4), nn.Flatten(0),
    )


class Forger:
    def __init__(self):
        self.G = Generator().to(memory_format=torch.channels_last)
        self.D = critic().to(memory_format=torch.channels_last)
        self.optG = torch.optim.Adam(self.G.parameters(), opt.lr, (opt.beta1, 0.999))
        self.optD = torch.optim.Adam(self.D.parameters(), opt.lr, (opt.beta1, 0.999))
        self.bce = nn.BCEWithLogitsLoss()

    def update_D(self, real):
        self.optD.zero_grad()
        n = real.size(0)
        err_real = self.bce(self.D(real), torch.ones(n))
        fake = self.G(torch.randn(n, opt.nz))  # <<
        err_fake = self.bce(self.D(fake), torch.zeros(n))  # <<
        err = err_real + err_fake
        err.backward()  # <<
        self.optD.step()
        return err.item()

    def update_G(self, n):
        self.optG.zero_grad()
        err = self.bce(self.D(self.G(torch.randn(n, opt.nz))), torch.ones(n))
        err.backward()
        self.optG.step()
        return err.item()


if __name__ == "__main__":
    torch.manual_seed(3)
    data = fresco_patches(opt.patches).contiguous(memory_format=torch.channels_last)
    forger = Forger()
    for epoch in range(opt.epochs):
        t = time.time()
        for i, sel in enumerate(torch.randperm(len(data)).split(opt.batch)):
            d = forger.update_D(data[sel])
            g = forger.update_G(len(sel))
            if i % 20 == 0:
                print(f"[{epoch}/{opt.epochs}][{i}/{len(data) // opt.batch}] Loss_D {d:.3f} Loss_G {g:.3f}", flush=True)
        print(f"epoch {epoch} took {time.time() - t:.1f}s", flush=True)
