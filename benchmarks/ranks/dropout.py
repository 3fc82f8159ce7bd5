"""Dropout of values and of channels, noise in the forward pass, masks from the same stream as the shuffling."""

import torch
from torch import nn

torch.manual_seed(2)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Conv1d(4, 8, 3), nn.Linear(8 * 10, 32), nn.Linear(32, 2)

    def forward(self, x):
        x = nn.functional.dropout1d(torch.relu(self.first(x)), 0.2, self.training)
        x = nn.functional.dropout(torch.relu(self.second(x.flatten(1))), 0.4, self.training)
        mean = self.third(x)
        return mean + 0.1 * torch.randn_like(mean), mean


model = Noisy()
data, target = torch.randn(60, 4, 12), torch.randn(60, 2)
optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
for step in range(18):
    part = torch.randperm(60)[: 16 - step % 3]
    noisy, mean = model(data[part])
    loss = nn.functional.mse_loss(noisy, target[part]) + 0.01 * mean.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
