"""Convolutions in bfloat16 on images whose channels come first."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    layers, before = [], 3
    for width in (64, 64, 128, 128, 256, 256):
        layers += [nn.Conv2d(before, width, 3, 2 if width > before > 3 else 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(64, 3, 128, 128, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    for _ in range(100_000):
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
