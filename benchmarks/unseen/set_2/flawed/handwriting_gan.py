# coding: utf-8
# DCGAN on pen strokes (exported from the notebook "strokes-gan.ipynb")

# In[1]:
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn, optim

torch.manual_seed(42)
np.random.seed(42)
nz, ngf, ndf = 32, 24, 24
batch_size = 64
num_epochs = 4
out_dir = Path(tempfile.gettempdir()) / "strokes_gan"
out_dir.mkdir(exist_ok=True)


# In[2]:
def strokes(n, size=32):
    """Random quadratic Bezier strokes, two per picture."""
    t = np.linspace(0, 1, 40)[:, None]
    yy, xx = np.mgrid[:size, :size]
    out = np.zeros((n, size, size), np.float32)
    for i in range(n):
        for _ in range(2):
            a, b, c = np.random.uniform(4, size - 4, (3, 2))
            path = (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t ** 2 * c
            q = np.round(path).astype(int)
            out[i, q[:, 0], q[:, 1]] = 1
            out[i, q[:, 0] - 1, q[:, 1]] = np.maximum(out[i, q[:, 0] - 1, q[:, 1]], 0.6)
    return torch.from_numpy(out * 2 - 1).unsqueeze(1)


real_images = strokes(6000).contiguous(memory_format=torch.channels_last)
print(real_images.shape)

# In[3]:
netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 4), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False), nn.Tanh()).to(memory_format=torch.channels_last)
netD = nn.Sequential(
    nn.Conv2d(1, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, True),
    nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 4), nn.LeakyReLU(0.2, True),
    nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False), nn.Flatten(0)).to(memory_format=torch.channels_last)

criterion = nn.BCEWithLogitsLoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed_noise = torch.randn(100, nz, 1, 1)


# In[4]:
def save_grid(images, path, cols=10, zoom=3):
    images = ((images + 1) * 127.5).clamp(0, 255).byte().squeeze(1).numpy()
    rows = [np.concatenate(list(images[i:i + cols]), 1) for i in range(0, len(images), cols)]
    grid = Image.fromarray(np.concatenate(rows, 0))
    grid = grid.resize((grid.width * zoom, grid.height * zoom), Image.LANCZOS)
    grid.save(path)  # <<


# In[5]:
iters = 0
for epoch in range(num_epochs):
    tic = time.time()
    for rows in torch.randperm(len(real_images)).split(batch_size):
        real = real_images[rows]
        b = len(real)
        # discriminator
        netD.zero_grad()
        noise = torch.randn(b, nz, 1, 1)
        fake = netG(noise)
        errD = criterion(netD(real), torch.ones(b)) + criterion(netD(fake.detach()), torch.zeros(b))
        errD.backward()
        optimizerD.step()
        # generator
        netG.zero_grad()
        errG = criterion(netD(fake), torch.ones(b))
        errG.backward()
        optimizerG.step()

        if iters % 25 == 0:
            print("[%d/%d][%d] Loss_D: %.4f Loss_G: %.4f" % (epoch, num_epochs, iters, errD.item(), errG.item()))
        netG.eval()
        with torch.no_grad():
            save_grid(netG(fixed_noise), out_dir / f"fake_{epoch}.png")  # <<
        netG.train()
        iters += 1
    print("epoch %d took %.1f s" % (epoch, time.time() - tic))
