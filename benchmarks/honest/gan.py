"""A GAN: two models, two optimizers, two steps a batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)
G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
og = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
od = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
angles = torch.rand(640) * 6.28
loader = DataLoader(TensorDataset(torch.stack([angles.cos(), angles.sin()], 1)), batch_size=32, shuffle=True)
bce = nn.BCEWithLogitsLoss()
for epoch in range(60):
    for (real,) in loader:
        n = len(real)
        fake = G(torch.randn(n, 8))
        od.zero_grad()
        loss_d = bce(D(real), torch.ones(n, 1)) + bce(D(fake.detach()), torch.zeros(n, 1))
        loss_d.backward()
        od.step()
        og.zero_grad()
        loss_g = bce(D(fake), torch.ones(n, 1))
        loss_g.backward()
        og.step()
