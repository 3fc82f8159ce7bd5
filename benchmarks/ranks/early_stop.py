"""Validation, a checkpoint of the best epoch that is read again, and an end that depends on the losses."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(7)
x = torch.randn(160, 10)
data = TensorDataset(x, (x @ torch.randn(10, 1)) + 0.3 * torch.randn(160, 1))
train, valid = random_split(data, [120, 40])
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), 2e-2)
best, patience = float("inf"), 0
for epoch in range(12):
    model.train()
    for a, b in DataLoader(train, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        nn.functional.huber_loss(model(a), b).backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        loss = sum(nn.functional.mse_loss(model(a), b, reduction="sum").item() for a, b in DataLoader(valid, 15)) / 40
    print(f"{epoch} {loss:.5f}")
    if loss < best - 0.002:
        best, patience = loss, 0
        os.makedirs("kept", exist_ok=True)
        torch.save({"model": model.state_dict(), "epoch": epoch}, "kept/best.pt")
    else:
        patience += 1
        if patience == 2:
            break
kept = torch.load("kept/best.pt", weights_only=True)
model.load_state_dict(kept["model"])
with open("kept/log.txt", "a") as file:
    file.write(f"{kept['epoch']}\n")
with open("kept/log.txt") as file:
    print("best", kept["epoch"], file.read().split())
