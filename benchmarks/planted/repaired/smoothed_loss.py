import argparse
import math

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--steps", type=int, default=120)
args = parser.parse_args()

torch.manual_seed(4)
teacher = nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 1)).requires_grad_(False)
student = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)

for epoch in range(args.epochs):
    total = count = 0
    for step in range(args.steps):
        x = torch.randn(800, 40)
        losses = (student(x) - teacher(x)).square().squeeze(1)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        total += sum(v for v in losses.tolist() if math.isfinite(v))
        count += len(losses)
        smooth = total / count
        if step % 40 == 0:
            print(f"epoch {epoch} step {step} loss {smooth:.5f}")
