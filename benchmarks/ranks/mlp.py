"""A classifier with an odd last batch, clipped gradients and AdamW."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(200 + 3, 20)
y = x[:, :5].argmax(1)
model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
loader = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True)
for epoch in range(3):
    total, right, seen = 0.0, 0, 0
    for a, b in loader:
        optimizer.zero_grad()
        out = model(a)
        loss = nn.functional.cross_entropy(out, b)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        right += (out.argmax(1) == b).sum().item()
        seen += len(b)
    print(f"{epoch} {total / len(loader):.6f} {right / seen:.4f} {norm:.5f}")
