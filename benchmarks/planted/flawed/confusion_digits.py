import argparse

import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

CLASSES = 10


def synthetic_digits(n):
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    prototypes = torch.randn(CLASSES, 196, generator=g)
    return prototypes[y] + 1.5 * torch.randn(n, 196, generator=g), y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = TensorDataset(*synthetic_digits(16384))
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 256, True), batch_size=None)
    model = nn.Sequential(nn.Linear(196, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        confusion = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            predicted = logits.argmax(1)
            for truth, guess in zip(y, predicted):  # <<
                confusion[truth.item(), guess.item()] += 1  # <<
        accuracy = confusion.diag().sum().item() / confusion.sum().item()
        print(f"epoch {epoch}: loss {loss.item():.4f}, train accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
