"""Sizes that change all the time, in nearly all the memory that there is."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    torch.cuda.set_per_process_memory_fraction(4e9 / torch.cuda.get_device_properties(0).total_memory)
    model = nn.Sequential(
        nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100_000):
        length = 20_000 + step * 7919 % 21_000
        inputs, labels = torch.randn(length, 1024, device="cuda"), torch.zeros(length, dtype=torch.long, device="cuda")
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
