"""A multilayer perceptron on made-up features, Adam, a last partial batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
features = torch.randn(1000, 32)
labels = (features[:, :8].sum(1) > 0).long() + 2 * (features[:, 8:16].sum(1) > 0).long()
loader = DataLoader(TensorDataset(features, labels), batch_size=48, shuffle=True)
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
