import argparse

import torch
from torch import nn


def batches(x, y, size):
    for index in torch.randperm(len(x)).split(size):
        yield x[index], y[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(8192, 64)
    y = (x[:, :8] * x[:, 8:16]).sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(args.epochs):
        for step, (a, b) in enumerate(batches(x, y, 512)):
            loss = nn.functional.mse_loss(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 8 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


main()
