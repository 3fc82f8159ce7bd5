import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from store import BlobDataset, Bucket


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    bucket = Bucket(latency_s=0.003)
    for i in range(200):
        bucket.put(f"train/{i:05d}", torch.randn(32, 32).numpy() + (i % 5))
    dataset = BlobDataset(bucket, "train/")
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=8, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(2048, 5),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(args.epochs):
        for n, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if n % 10 == 0:
                print(f"epoch {epoch} n {n} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
