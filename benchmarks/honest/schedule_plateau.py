"""ReduceLROnPlateau on the validation loss, early checkpoints, weight decay, a fixed-order loader."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(7)
x = torch.randn(600, 16)
y = (x[:, :4] ** 2).sum(1, keepdim=True)
train, val = random_split(TensorDataset(x, y), [500, 100])
loader, checker = DataLoader(train, batch_size=50), DataLoader(val, batch_size=100)
model = nn.Sequential(nn.Linear(16, 48), nn.Softplus(), nn.Linear(48, 1))
opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5, threshold=0.05)
path = os.path.join(tempfile.mkdtemp(), "best.pt")
best = float("inf")
for epoch in range(60):
    for a, b in loader:
        opt.zero_grad()
        loss = nn.functional.huber_loss(model(a), b)
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        check = sum(nn.functional.mse_loss(model(a), b).item() for a, b in checker)
    model.train()
    schedule.step(check)
    if check < best:
        best = check
        torch.save({"model": model.state_dict(), "optimizer": opt.state_dict()}, path)
