"""Batches in pinned memory, copied as if they were not."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2048, 3, 128, 128), torch.randint(0, 10, (2048,)))
    batches = list(DataLoader(data, batch_size=256, pin_memory=True))
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(model, nn.Linear(64 * 32 * 32, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10_000):
        for images, labels in batches:
            images, labels = images.cuda(), labels.cuda()
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
