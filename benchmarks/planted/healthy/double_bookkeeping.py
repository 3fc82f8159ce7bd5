import argparse
import math

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
rng = np.random.default_rng(0)
inputs = torch.from_numpy(rng.normal(size=(8192, 128)).astype(np.float32))
targets = inputs[:, :3].square().sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(128, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
total = torch.zeros((), dtype=torch.float64)
step = 0
for epoch in range(args.epochs):
    errors = np.zeros(16, dtype=np.float64)
    for k, index in enumerate(torch.randperm(8192).split(512)):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (0.55 + 0.45 * math.cos(math.pi * (step % 400) / 400))
        loss = nn.functional.mse_loss(model(inputs[index]), targets[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach().double()
        errors[k] = loss.item()
        step += 1
    print(f"epoch {epoch} mse {errors.mean():.5f} overall {total.item() / step:.5f}")
