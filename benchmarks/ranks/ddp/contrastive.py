"""A contrastive loss over all pairs of a batch, two calls in each step: 320 steps of 256 rows."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(20_480, 128)
other = x + 0.1 * torch.randn(20_480, 128)
model = nn.Sequential(nn.Linear(128, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 64))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
loader = DataLoader(TensorDataset(x, other), batch_size=256, shuffle=True, drop_last=True)
begin = time.perf_counter()
for _ in range(4):
    for a, b in loader:
        one, two = nn.functional.normalize(model(a), dim=1), nn.functional.normalize(model(b), dim=1)
        loss = nn.functional.cross_entropy(one @ two.T / 0.1, torch.arange(len(one)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{loss.item():.5f} seconds {time.perf_counter() - begin:.4f}")
