import argparse
import random

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, 3, n)
        self.images = [Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)) for _ in range(n)]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i].rotate(random.uniform(-15, 15), Image.BILINEAR).crop((4, 4, 36, 36))
        array = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(array.transpose(2, 0, 1).copy()), self.labels[i]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Augmented(320), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3),
    ).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                print(f"[{epoch}:{step}] {loss.item():.4f}")


if __name__ == "__main__":
    main()
