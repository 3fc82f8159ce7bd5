# DCGAN for 32x32 cloud cover tiles (non-saturating loss, 4 critic updates per generator update)
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--iters', type=int, default=300)
parser.add_argument('--bs', type=int, default=8)
parser.add_argument('--nz', type=int, default=48)
parser.add_argument('--ngf', type=int, default=16)
parser.add_argument('--ndf', type=int, default=6)
parser.add_argument('--d_steps', type=int, default=4)
parser.add_argument('--lr', type=float, default=2e-4)
parser.add_argument('--seed', type=int, default=999)
opt = parser.parse_args()
print(opt)
torch.manual_seed(opt.seed)


def cloud_tiles(n):
    """sum of smooth random fields, in [-1, 1]"""
    out = torch.zeros(n, 1, 32, 32)
    for res, w in ((4, 1.0), (8, 0.5), (16, 0.25)):
        field = torch.randn(n, 1, res, res)
        out += w * nn.functional.interpolate(field, size=32, mode='bicubic', align_corners=False)
    return torch.tanh(out)


def weights_init(m):
    name = m.__class__.__name__
    if 'Conv' in name:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif 'BatchNorm' in name:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.project = nn.Linear(nz, ngf * 4 * 8 * 8)
        self.ngf = ngf
        self.main = nn.Sequential(
            nn.BatchNorm2d(ngf * 4), nn.ReLU(True),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(ngf * 4, ngf * 2, 3, 1, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(ngf * 2, ngf, 3, 1, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.Conv2d(ngf, ngf, 3, 1, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.Conv2d(ngf, 1, 3, 1, 1), nn.Tanh(),
        )

    def forward(self, z):
        return self.main(self.project(z).view(len(z), self.ngf * 4, 8, 8))


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(ndf * 4, 1, 4, 1, 0),
        )

    def forward(self, x):
        return self.main(x).view(-1)


tiles = cloud_tiles(1500)
netG = Generator(opt.nz, opt.ngf).apply(weights_init)
netD = Discriminator(opt.ndf).apply(weights_init)
criterion = nn.BCEWithLogitsLoss()
optD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))
ones, zeros = torch.ones(opt.bs), torch.zeros(opt.bs)

for it in range(opt.iters):
    # (1) D: maximise log(D(x)) + log(1 - D(G(z)))
    for _ in range(opt.d_steps):
        real = tiles[torch.randint(len(tiles), (opt.bs,))]
        fake = netG(torch.randn(opt.bs, opt.nz))  # <<
        optD.zero_grad()
        errD = criterion(netD(real), ones) + criterion(netD(fake), zeros)  # <<
        errD.backward()  # <<
        optD.step()

    # (2) G: maximise log(D(G(z)))
    optG.zero_grad()
    fake = netG(torch.randn(opt.bs, opt.nz))
    errG = criterion(netD(fake), ones)
    errG.backward()
    optG.step()

    if it % 25 == 0 or it == opt.iters - 1:
        print('[%d/%d] Loss_D: %.4f Loss_G: %.4f  std(fake): %.3f'
              % (it, opt.iters, errD.item(), errG.item(), fake.std().item()))
