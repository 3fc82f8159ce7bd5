import argparse

import torch
import torch.nn as nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.a = nn.Linear(width, width)
        self.b = nn.Linear(width, width)

    def forward(self, x):
        return x + 0.1 * self.b(torch.relu(self.a(self.norm(x))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--depth", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), *[Residual(32) for _ in range(args.depth)], nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)  # <<
    x = torch.randn(2048, 16)
    y = torch.sin(3 * x[:, :1]) * x[:, 1:2]
    for epoch in range(args.epochs):
        for step, index in enumerate(torch.randperm(len(x)).split(64)):
            loss = nn.functional.mse_loss(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # <<
            if step % 16 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
