import argparse

import numpy as np
import torch
from torch import nn

from wildlife_cameras.mix import paste_boxes
from wildlife_cameras.shots import SPECIES, read_archive, write_archive


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, len(SPECIES)),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    folder = write_archive()
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = read_archive(folder)
    for epoch in range(args.epochs):
        for index in torch.randperm(len(images)).split(32):
            x, target = paste_boxes(images[index], labels[index], len(SPECIES), rng)
            loss = nn.functional.cross_entropy(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


main()
