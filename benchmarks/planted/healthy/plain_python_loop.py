import argparse
from collections import Counter, deque

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Meter:
    def __init__(self, window=20):
        self.values = deque(maxlen=window)
        self.counts = Counter()

    def update(self, loss, labels):
        self.values.append(loss)
        self.counts.update(labels.unique().tolist())

    def __str__(self):
        return f"loss {sum(self.values) / len(self.values):.4f} classes {len(self.counts)}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    y = torch.randint(0, 12, (4096,))
    x = torch.randn(12, 256)[y] + 2 * torch.randn(4096, 256)
    data = TensorDataset(x, y)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 256, False), batch_size=None)
    model = nn.Sequential(nn.Linear(256, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    meter = Meter()
    for epoch in range(args.epochs):
        for step, (features, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(loss.item(), labels)
            if step % 8 == 0:
                print(f"epoch {epoch} step {step} {meter}")


main()
