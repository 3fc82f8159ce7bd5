"""The guide's loop over a resident batch, over images prepared by hand, and over the compiled loader, in turn.

From process to process a shared machine scatters by more than what is looked for (steps of a resident batch by 1.4x); a
ratio of two epochs that follow each other within one process does not.

    python benchmarks/mnist_guide/in_turn.py [--turns N] [--fused]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from train import MLP, datasets, transforms  # defines what torchvision's compiled operations are asked for

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import mnist_guide
from torch import nn, optim
from torch.utils.data import DataLoader

from flatout import compile_loader

IMAGES, BATCH = 60_000, 64
CEILING = "resident batch"


class Prepared:
    """Batches of images that were made into normalized numbers at once, gathered as the loader would shuffle them."""

    def __init__(self, dataset):
        """Prepare all images."""
        self.pixels = dataset.data.unsqueeze(1).float().div_(255).sub_(0.1307).div_(0.3081)
        self.targets = dataset.targets

    def __iter__(self):
        for rows in torch.randperm(len(self.pixels)).split(BATCH):
            yield self.pixels.index_select(0, rows), self.targets.index_select(0, rows)


def step_us(loader, model, optimizer):
    """Return the microseconds of a step of one epoch, as the guide trains it."""
    criterion, start, steps, running = nn.CrossEntropyLoss(), time.perf_counter(), 0, 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        running += loss.item()
        steps += 1
    return (time.perf_counter() - start) / steps * 1e6


def main():
    """Print the median step of each, and the resident batch's as a share of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=10, help="epochs of each")
    parser.add_argument("--fused", action="store_true", help="Adam with fused=True")
    options = parser.parse_args()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        mnist_guide.write_mnist(Path(folder), IMAGES)
        transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
        dataset = datasets.MNIST(os.path.join(folder, "data"), train=True, transform=transform)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    loaders = {
        CEILING: [next(iter(loader))] * len(loader),
        "prepared by hand": Prepared(dataset),
        "compiled": compile_loader(loader),
    }
    model = MLP()
    optimizer = optim.Adam(model.parameters(), lr=1e-3, fused=options.fused)
    turns = [[step_us(each, model, optimizer) for each in loaders.values()] for _ in range(1 + options.turns)][1:]
    for name, times in zip(loaders, zip(*turns, strict=True), strict=True):
        shares = [first[0] / one for first, one in zip(turns, times, strict=True)]
        print(
            f"{name:18}{statistics.median(times):6.0f} us a step, {statistics.median(shares):.0%} of a {CEILING} "
            f"({min(shares):.0%} to {max(shares):.0%}, n={len(turns)} epochs in turn)"
        )


if __name__ == "__main__":
    main()
