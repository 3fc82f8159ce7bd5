import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def main():
    epochs = 22
    if "--epochs" in sys.argv:
        epochs = int(sys.argv[sys.argv.index("--epochs") + 1])
    torch.manual_seed(42)
    batch = 16
    nz = 64

    # "faces": two eyes and a mouth, at different places and in different tones
    n = 640
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
    shift = torch.randn(n, 2, 1, 1) * 0.1
    yy, xx = yy + shift[:, 0], xx + shift[:, 1]
    face = (xx ** 2 + yy ** 2 < 0.8).float()
    eyes = ((xx.abs() - 0.35) ** 2 + (yy + 0.25) ** 2 < 0.02).float()
    mouth = ((yy - 0.4).abs() < 0.06).float() * (xx.abs() < 0.35).float()
    tone = torch.rand(n, 3, 1, 1)
    images = (face - eyes - mouth).unsqueeze(1) * tone * 1.6 - 0.8
    images = images + 0.05 * torch.randn_like(images)

    netG = nn.Sequential(
        nn.ConvTranspose2d(nz, 192, 4, 1, 0, bias=False), nn.BatchNorm2d(192), nn.ReLU(True),
        nn.ConvTranspose2d(192, 96, 4, 2, 1, bias=False), nn.BatchNorm2d(96), nn.ReLU(True),
        nn.ConvTranspose2d(96, 48, 4, 2, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU(True),
        nn.Conv2d(48, 48, 3, 1, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU(True),
        nn.ConvTranspose2d(48, 3, 4, 2, 1), nn.Tanh(),
    )
    netD = nn.Sequential(
        nn.Conv2d(3, 24, 4, 2, 1), nn.LeakyReLU(0.2, True),
        nn.Conv2d(24, 48, 4, 2, 1, bias=False), nn.BatchNorm2d(48), nn.LeakyReLU(0.2, True),
        nn.Conv2d(48, 96, 4, 2, 1, bias=False), nn.BatchNorm2d(96), nn.LeakyReLU(0.2, True),
        nn.Conv2d(96, 1, 4, 1, 0),
    )
    for m in list(netG.modules()) + list(netD.modules()):
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(m.weight, 0.0, 0.02)

    optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    ones, zeros = torch.ones(batch), torch.zeros(batch)
    bce = F.binary_cross_entropy_with_logits

    for epoch in range(epochs):
        start = time.time()
        errsD, errsG = [], []
        for idx in torch.randperm(n).split(batch):
            real = images[idx]

            # discriminator: log(D(x)) + log(1 - D(G(z)))
            fake = netG(torch.randn(batch, nz, 1, 1))
            out_real = netD(real).view(-1)
            out_fake = netD(fake).view(-1)  # <<
            errD = bce(out_real, ones) + bce(out_fake, zeros)
            optD.zero_grad()
            errD.backward(retain_graph=True)  # <<
            optD.step()

            # generator: log(D(G(z)))
            for p in netD.parameters():
                p.requires_grad_(False)
            errG = bce(netD(fake).view(-1), ones)
            optG.zero_grad()
            errG.backward()
            optG.step()
            for p in netD.parameters():
                p.requires_grad_(True)

            errsD.append(errD.detach())
            errsG.append(errG.detach())
        print(
            "epoch %d  D %.3f  G %.3f  (%.2f s)"
            % (epoch, torch.stack(errsD).mean().item(), torch.stack(errsG).mean().item(), time.time() - start),
            flush=True,
        )


if __name__ == "__main__":
    main()
