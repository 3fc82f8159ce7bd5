"""Whole maps of classes come back to the host for an accuracy; repaired: the accuracy is computed on the device."""

import torch
from torch import nn


def main(repaired=False, steps=100_000):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 21, 1)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(16, 3, 192, 192, device="cuda"), torch.randint(0, 21, (16, 192, 192), device="cuda")
    known, accuracy = labels.cpu(), 0.0
    for _ in range(steps):
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if repaired:
            accuracy += (scores.detach().argmax(1) == labels).float().mean()
        else:
            accuracy += (scores.detach().cpu().argmax(1) == known).float().mean().item()


if __name__ == "__main__":
    main()
