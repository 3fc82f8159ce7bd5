"""Numbers and categories of a table: 320 steps of 512 rows."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Table(nn.Module):
    def __init__(self, columns=8, categories=50, numbers=16):
        super().__init__()
        self.embed = nn.ModuleList([nn.Embedding(categories, 8) for _ in range(columns)])
        self.mlp = nn.Sequential(nn.Linear(8 * columns + numbers, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                                 nn.Linear(128, 1))  # fmt: skip

    def forward(self, kinds, numbers):
        parts = [embed(kinds[:, at]) for at, embed in enumerate(self.embed)]
        return self.mlp(torch.cat([*parts, numbers], 1)).squeeze(1)


kinds, numbers = torch.randint(0, 50, (40_960, 8)), torch.randn(40_960, 16)
y = (numbers[:, 0] + (kinds[:, 0] > 25)).float()
model = Table()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
loader = DataLoader(TensorDataset(kinds, numbers, y), batch_size=512, shuffle=True, drop_last=True)
begin = time.perf_counter()
for _ in range(4):
    for a, n, b in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(a, n), b.clamp(0, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{loss.item():.5f} seconds {time.perf_counter() - begin:.4f}")
