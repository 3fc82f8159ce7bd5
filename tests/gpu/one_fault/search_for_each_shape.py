"""Images of 144 sizes, and cuDNN tries its algorithms anew for each of them; repaired: it does not."""

import random

import torch
from torch import nn


def main(repaired=False, steps=100_000):
    torch.manual_seed(0)
    draw = random.Random(0)
    torch.backends.cudnn.benchmark = not repaired
    layers, before = [], 3
    for width in (32, 64, 64, 128, 128):
        layers += [nn.Conv2d(before, width, 3, 2 if width > before > 3 else 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    labels = torch.randint(0, 10, (32,), device="cuda")
    for _ in range(steps):
        height, width = (64 + 16 * draw.randrange(12) for _ in range(2))
        images = torch.randn(32, 3, height, width, device="cuda")
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
