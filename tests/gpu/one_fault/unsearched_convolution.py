"""Convolutions of one size of image, whose algorithms cuDNN takes by its rules; repaired: it tries them once."""

import torch
from torch import nn


def main(repaired=False, steps=100_000):
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = repaired
    layers, before = [], 3
    for width, kernel, stride in ((64, 7, 2), (96, 5, 1), (128, 3, 2), (192, 3, 1), (256, 3, 2), (256, 5, 1)):
        layers += [nn.Conv2d(before, width, kernel, stride, kernel // 2), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)).cuda()
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(64, 3, 160, 160, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (64,), device="cuda")
    for _ in range(steps):
        with torch.autocast("cuda", torch.float16):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
