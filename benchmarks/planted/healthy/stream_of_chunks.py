import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, num_chunks, rows):
        self.num_chunks, self.rows = num_chunks, rows
        self.base = torch.randn(num_chunks * rows, 96)

    def __iter__(self):
        pending = []
        for k in range(self.num_chunks):
            pending.append(self.base[k * self.rows : (k + 1) * self.rows])
            if len(pending) == 6:
                yield pending.pop(random.randrange(6))
        random.shuffle(pending)
        yield from pending


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 12))
        self.decode = nn.Sequential(nn.Linear(12, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 96))

    def forward(self, x):
        return self.decode(self.encode(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    loader = DataLoader(Stream(32, 512), batch_size=None)
    model = Autoencoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(args.epochs):
        for chunk in loader:
            loss = nn.functional.mse_loss(model(chunk), chunk)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.5f}")


main()
