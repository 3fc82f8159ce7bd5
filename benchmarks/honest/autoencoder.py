"""A variational autoencoder with transposed convolutions; the sampling draws random numbers in the forward pass."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)
base = torch.rand(16, 1, 16, 16)
images = (base[torch.randint(0, 16, (320,))] + 0.1 * torch.rand(320, 1, 16, 16)).clamp(0, 1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 4, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mu, self.logvar = nn.Linear(256, 6), nn.Linear(256, 6)
        self.up = nn.Linear(6, 256)
        self.out = nn.Sequential(nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, x):
        h = self.down(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.out(F.relu(self.up(z)).view(-1, 16, 4, 4)), mu, logvar


model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(60):
    for (x,) in DataLoader(TensorDataset(images), batch_size=32, shuffle=True):
        out, mu, logvar = model(x)
        loss = F.binary_cross_entropy_with_logits(out, x, reduction="sum") / len(x)
        loss = loss - 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
