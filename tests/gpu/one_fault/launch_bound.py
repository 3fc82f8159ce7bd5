"""A deep, narrow network: hundreds of small kernels a step."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1)) for _ in range(40)]
    model = nn.Sequential(*layers, nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(64, 64, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    for _ in range(100_000):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
