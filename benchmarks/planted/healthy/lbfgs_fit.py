import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
x = torch.linspace(-4, 4, 4096).unsqueeze(1)
x = torch.cat([x, x.sin(), x.cos()], 1)
y = torch.sin(3 * x[:, :1]) * torch.exp(-x[:, :1].abs() / 3)
net = nn.Sequential(nn.Linear(3, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.3, max_iter=4, history_size=5)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for epoch in range(args.epochs):
    for step in range(12):
        loss = optimizer.step(closure)
    print(f"epoch {epoch}: {loss.item():.6f}")
