import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class WeightedDraw(Sampler):
    """Draws rare defects as often as good parts."""

    def __init__(self, labels, seed=0):
        counts = np.bincount(labels)
        weights = 1.0 / counts[labels]
        self.p = weights / weights.sum()
        self.rng = np.random.default_rng(seed)
        self.num_samples = 2048

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        yield from self.rng.choice(len(self.p), size=self.num_samples, p=self.p).tolist()


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 25, 64), nn.ReLU(), nn.Linear(64, 3),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    n = 16000
    labels = torch.multinomial(torch.tensor([0.95, 0.04, 0.01]), n, replacement=True)
    parts = torch.randn(n, 1, 20, 20) * 0.5
    parts[:, 0, 5:10, 5:10] += labels.view(-1, 1, 1).float()
    data = TensorDataset(parts, labels)
    sampler = WeightedDraw(labels.numpy())
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(args.epochs):
        correct = 0
        for image, label in loader:
            logits = model(image)
            loss = nn.functional.cross_entropy(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == label).sum().item()
        print(f"epoch {epoch} loss {loss.item():.5f} balanced acc {correct / sampler.num_samples:.3f}")


main()
