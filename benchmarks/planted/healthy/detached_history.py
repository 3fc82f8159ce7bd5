import argparse
from collections import deque

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
history, tensors = [], deque(maxlen=24)
x = torch.randn(12288, 100)
y = x[:, :10].prod(1, keepdim=True)
model = nn.Sequential(nn.Linear(100, 600), nn.SiLU(), nn.Linear(600, 600), nn.SiLU(), nn.Linear(600, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=24 * args.epochs + 1)
for epoch in range(args.epochs):
    for index in torch.randperm(len(x)).split(512):
        loss = nn.functional.huber_loss(model(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        history.append(loss.item())
        tensors.append(loss.detach())
    recent = torch.stack(list(tensors)).mean()
    print(f"epoch {epoch} loss {recent:.5f} lr {scheduler.get_last_lr()[0]:.2e} steps {len(history)}")
