"""A value is read in the middle of the step, again and again, and the device runs empty each time."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(16)), nn.Linear(1024, 10))
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(4096, 1024, device="cuda"), torch.randint(0, 10, (4096,), device="cuda")
    for _ in range(100_000):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        norms = [parameter.grad.norm().item() for parameter in model.parameters()]
        if max(norms) < 1e6:
            optimizer.step()


if __name__ == "__main__":
    main()
