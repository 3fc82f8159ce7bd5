import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=200)
p.add_argument("--batch-size", type=int, default=2048)
p.add_argument("--lr", type=float, default=1e-3)
a = p.parse_args()

torch.manual_seed(0)
X = torch.randn(65536, 24)
Y = (X[:, :6].sum(1) + X[:, 6] * X[:, 7] + 0.1 * torch.randn(len(X))).unsqueeze(1)
dataset = TensorDataset(X, Y)
loader = DataLoader(dataset, batch_size=a.batch_size, shuffle=True)  # <<

model = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=a.lr)

for epoch in range(a.epochs):
    total = 0.0
    for x, y in loader:  # <<
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
    print(f"Epoch {epoch}: mse {total / len(X):.4f}")
