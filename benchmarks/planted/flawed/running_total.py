import argparse

import torch
import torch.nn as nn

torch.manual_seed(0)
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()

x = torch.randn(4096, 64)
y = torch.tanh(x @ torch.randn(64, 4))
model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(args.epochs):
    total_loss = 0
    for index in torch.randperm(len(x)).split(64):
        loss = nn.functional.mse_loss(model(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss  # <<
    print(f"epoch {epoch} average loss {total_loss / 64:.5f}")
