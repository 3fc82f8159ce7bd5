"""Batch normalization, dropout, clipping, batches that no number of ranks divides, and gradients of several batches."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)
x = torch.randn(330, 48)
y = (x[:, :8].sum(1) > 0).long()
model = nn.Sequential(
    nn.Linear(48, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)
)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
step = 0
for _ in range(5):
    for a, b in DataLoader(TensorDataset(x, y), batch_size=31, shuffle=True):
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        step += 1
        if step % 2:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        print(f"{step} {loss.item():.6f} {norm.item():.5f}")
    model.eval()
    with torch.no_grad():
        print(f"  {(model(x).argmax(1) == y).float().mean().item():.4f}")
    model.train()
