"""A variational autoencoder that returns its loss: means over the batch inside of the model."""

import torch
from torch import nn

torch.manual_seed(11)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, 1)
        found = self.decoder(mean + torch.randn_like(mean) * (0.5 * spread).exp())
        divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(1).mean()
        return nn.functional.mse_loss(found, x) + 0.01 * divergence


model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
data = torch.randn(100, 20)
for step in range(12):
    loss = model(data[torch.randperm(100)[:19]])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
