"""The ladder's loop over its loader, and over a batch that is on the device already, in turn within one process.

From epoch to epoch a shared machine scatters by more than what is looked for; a ratio of two epochs that follow each
other does not. Under the ladder's recipe the loader is flatout's, by itself the script's own.

    cd benchmarks/ladder
    flatout tune --equal bitwise --only device-resident-input --recipe r.toml train.py 100
    sed -i 's/^script = .*/script = "in_turn.py"/' r.toml
    flatout run --recipe r.toml in_turn.py [--compiled] [--pairs N]
"""

import argparse
import statistics
import time

import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from train import SIDE, Pictures, models, transforms

BATCH, IMAGES = 32, 3200
WARM_UP = 3  # pairs of epochs


def epoch(loader, model, optimizer, device):
    """Return the images a second of one epoch, as the ladder trains it."""
    criterion, start, seen = nn.CrossEntropyLoss(), time.perf_counter(), 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        seen += len(labels)
    return seen / (time.perf_counter() - start)


def main():
    """Print the median rates, and the median and range of their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--compiled", action="store_true", help="the model, by model.compile()")
    parser.add_argument("--pairs", type=int, default=12, help="of epochs")
    parser.add_argument("--images", type=int, default=IMAGES)
    options = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    scaled = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])
    dataset = Pictures(options.images, transforms.Compose([transforms.Resize(SIDE), *scaled.transforms]))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    resident = [[part.to(device) for part in next(iter(loader))]] * len(loader)
    model = models.resnet18(num_classes=10).to(device)
    if options.compiled:
        model.compile()
    optimizer = optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    pairs = [
        [epoch(batches, model, optimizer, device) for batches in (loader, resident)]
        for _ in range(WARM_UP + options.pairs)
    ][WARM_UP:]
    shares = [ours / theirs for ours, theirs in pairs]
    rates = [statistics.median(column) for column in zip(*pairs, strict=True)]
    print(f"loader {rates[0]:,.0f} images/s, resident batch {rates[1]:,.0f} (medians of {len(pairs)} epochs in turn)")
    print(f"share {statistics.median(shares):.3f} (from {min(shares):.3f} to {max(shares):.3f})")


if __name__ == "__main__":
    main()
